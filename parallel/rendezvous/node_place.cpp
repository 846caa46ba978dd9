#include "parallel/rendezvous/node_place.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace megatrain::parallel {

namespace {

/// A rank that starts ranks of its own is a mistake that would multiply.
void refuse_ranks(const Variables& variables) {
  if (variables.has("MEGATRAIN_RANK"))
    throw UserError("megatrain launch was started by megatrain launch; start the program itself");
  for (const std::string_view name : {"LOCAL_RANK", "OMPI_COMM_WORLD_RANK"})
    if (variables.has(name))
      throw UserError(
          fmt::format("{} is set: another launcher starts a process for each rank already; let it "
                      "start the program itself, without megatrain launch",
                      name));
}

NodePlace from_process(const ProcessPlace& place) {
  if (place.local_size != 1)
    throw UserError(
        fmt::format("{} starts {} processes on this node, but megatrain launch starts the ranks of "
                    "a node itself: one task a node (srun --ntasks-per-node=1), or no launch",
                    name(place.source), place.local_size));
  NodePlace node;
  node.node = place.node;
  node.nodes = place.nodes;
  node.run_id = place.run_id;
  node.rendezvous = place.rendezvous;
  node.source = place.source;
  return node;
}

}  // namespace

NodePlace detect_node(const Environment& environment, const NodeOverrides& overrides) {
  const Variables variables(environment);
  refuse_ranks(variables);
  NodePlace place;
  if (overrides.nodes || overrides.node) {
    place.source = PlaceSource::command_line;
    place.nodes = overrides.nodes.value_or(1);
    place.rendezvous.host.clear();
    if (overrides.node)
      place.node = *overrides.node;
    else if (const auto index = variables.number("JOB_COMPLETION_INDEX"))
      place.node = *index;
    else if (place.nodes > 1)
      throw UserError(
          fmt::format("--nnodes {} needs --node-rank: which of them is this one, from "
                      "0 to {}?",
                      place.nodes, place.nodes - 1));
  } else {
    Environment pods = environment;
    // Processes of a pod are ours to start.
    pods.erase("PET_NPROC_PER_NODE");
    const ProcessPlace found = detect_place(pods);
    if (found.source == PlaceSource::slurm || found.source == PlaceSource::kubernetes)
      place = from_process(found);
  }
  if (overrides.rendezvous)
    place.rendezvous = parse_endpoint(*overrides.rendezvous, "--rendezvous", kDefaultPort);
  else if (const auto own = variables.text("MEGATRAIN_RENDEZVOUS"))
    place.rendezvous = parse_endpoint(*own, "MEGATRAIN_RENDEZVOUS", kDefaultPort);
  if (overrides.run_id) place.run_id = *overrides.run_id;
  if (place.node < 0 || place.node >= place.nodes)
    throw UserError(
        fmt::format("node rank {} does not fit a node count of {}", place.node, place.nodes));
  if (place.nodes > 1 && (place.rendezvous.host.empty() || place.rendezvous.port == 0))
    throw UserError(
        fmt::format("{} nodes need --rendezvous HOST:PORT: the node with rank 0 and a "
                    "port that is free there",
                    place.nodes));
  return place;
}

}  // namespace megatrain::parallel
