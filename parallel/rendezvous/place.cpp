#include "parallel/rendezvous/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "parallel/rendezvous/node_list.h"

namespace megatrain::parallel {

namespace {

using Found = std::optional<ProcessPlace>;

/// Fills node and node count where the launcher tells ranks alone: they count node by node, as many
/// on each.
void derive_nodes(ProcessPlace& place, std::string_view launcher) {
  if (place.local_size <= 0 || place.world % place.local_size != 0 ||
      place.rank % place.local_size != place.local_rank)
    throw UserError(fmt::format(
        "{} says rank {} of {}, local rank {} of {}: ranks must count node by node, as many on "
        "each (mpirun --map-by slot, srun --distribution=block)",
        launcher, place.rank, place.world, place.local_rank, place.local_size));
  place.node = place.rank / place.local_size;
  place.nodes = place.world / place.local_size;
}

/// MASTER_ADDR and MASTER_PORT, where someone set them.
std::optional<Endpoint> master(const Variables& variables) {
  const std::optional<std::string> host = variables.text("MASTER_ADDR");
  if (!host) return std::nullopt;
  const int port = variables.number("MASTER_PORT").value_or(kDefaultPort);
  if (port > 65535) throw UserError(fmt::format("MASTER_PORT={} is no port", port));
  return Endpoint{*host, static_cast<std::uint16_t>(port)};
}

Endpoint need_master(const Variables& variables, std::string_view launcher) {
  for (const std::string_view name : {"MASTER_ADDR", "MASTER_PORT"})
    static_cast<void>(variables.need_text(name, launcher));
  return *master(variables);
}

/// A port above the well-known ones that all processes of a run derive alike.
std::uint16_t derived_port(std::uint64_t number) {
  return static_cast<std::uint16_t>(15000 + number % 10000);
}

Found from_own(const Variables& variables) {
  if (!variables.has("MEGATRAIN_RANK")) return std::nullopt;
  constexpr std::string_view kWho = "MEGATRAIN_RANK";
  ProcessPlace place;
  place.source = PlaceSource::own;
  place.rank = variables.need_number("MEGATRAIN_RANK", kWho);
  place.world = variables.need_number("MEGATRAIN_WORLD_SIZE", kWho);
  if (place.world != 1) {
    place.local_rank = variables.need_number("MEGATRAIN_LOCAL_RANK", kWho);
    place.local_size = variables.need_number("MEGATRAIN_LOCAL_SIZE", kWho);
    place.rendezvous = parse_endpoint(variables.need_text("MEGATRAIN_RENDEZVOUS", kWho),
                                      "MEGATRAIN_RENDEZVOUS", kDefaultPort);
  } else if (const auto endpoint = variables.text("MEGATRAIN_RENDEZVOUS")) {
    place.rendezvous = parse_endpoint(*endpoint, "MEGATRAIN_RENDEZVOUS", kDefaultPort);
  }
  if (variables.has("MEGATRAIN_NODE_RANK") || variables.has("MEGATRAIN_NODES")) {
    place.node = variables.need_number("MEGATRAIN_NODE_RANK", "MEGATRAIN_NODES");
    place.nodes = variables.need_number("MEGATRAIN_NODES", "MEGATRAIN_NODE_RANK");
  } else {
    derive_nodes(place, kWho);
  }
  place.generation = variables.number("MEGATRAIN_GENERATION").value_or(0);
  place.run_id = variables.text("MEGATRAIN_RUN_ID").value_or("run");
  place.served = variables.number("MEGATRAIN_RENDEZVOUS_SERVED").value_or(0) != 0;
  return place;
}

Found from_torchrun(const Variables& variables) {
  for (const std::string_view name : {"RANK", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    if (!variables.has(name)) return std::nullopt;
  constexpr std::string_view kWho = "torchrun";
  ProcessPlace place;
  place.source = PlaceSource::torchrun;
  place.rank = variables.need_number("RANK", kWho);
  place.world = variables.need_number("WORLD_SIZE", kWho);
  place.local_rank = variables.need_number("LOCAL_RANK", kWho);
  place.local_size = variables.need_number("LOCAL_WORLD_SIZE", kWho);
  place.node = variables.need_number("GROUP_RANK", kWho);
  if (const auto nodes = variables.number("GROUP_WORLD_SIZE")) {
    place.nodes = *nodes;
  } else {
    const int node = place.node;
    derive_nodes(place, kWho);
    if (node != place.node)
      throw UserError(fmt::format("GROUP_RANK={} contradicts RANK={} and LOCAL_WORLD_SIZE={}", node,
                                  place.rank, place.local_size));
  }
  place.generation = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  place.run_id = variables.text("TORCHELASTIC_RUN_ID").value_or("torchrun");
  if (place.world > 1) {
    place.rendezvous = need_master(variables, kWho);
    // torchrun's agent holds that port itself, and does not speak with us.
    if (variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
      place.rendezvous.port =
          place.rendezvous.port == 65535 ? 65534 : std::uint16_t(place.rendezvous.port + 1);
  }
  return place;
}

/// Names by which an MPI launcher tells a process its place.
struct MpiNames {
  std::string_view launcher, rank, size, local_rank, local_size;
};
constexpr std::array kMpi = {
    MpiNames{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    MpiNames{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

/// Whether the process is a task of a step that srun started. Batch scripts and shells of salloc
/// have Slurm's variables too, but are one process, whatever SLURM_NTASKS says; the steps that
/// Slurm makes for them have numbers from the top of 32 bits.
bool in_slurm_step(const Variables& variables) {
  const std::optional<std::string> step = variables.text("SLURM_STEP_ID");
  return step && step->size() < 10 && variables.has("SLURM_PROCID");
}

Found from_mpi(const Variables& variables) {
  const auto* const names =
      std::ranges::find_if(kMpi, [&](const MpiNames& one) { return variables.has(one.rank); });
  if (names == kMpi.end()) return std::nullopt;
  // srun speaks PMI too, and knows more.
  if (names->launcher == "PMI" && in_slurm_step(variables)) return std::nullopt;
  ProcessPlace place;
  place.source = PlaceSource::mpi;
  place.rank = variables.need_number(names->rank, names->launcher);
  place.world = variables.need_number(names->size, names->launcher);
  for (const MpiNames& other : kMpi) {
    variables.require_agrees(other.rank, place.rank, names->rank);
    variables.require_agrees(other.size, place.world, names->size);
  }
  const auto job = variables.text("PMIX_NAMESPACE");
  place.run_id = job.value_or("mpi");
  if (place.world > 1) {
    place.local_rank = variables.need_number(names->local_rank, names->launcher);
    place.local_size = variables.need_number(names->local_size, names->launcher);
    derive_nodes(place, names->launcher);
  }
  if (const auto endpoint = master(variables))
    place.rendezvous = *endpoint;
  else if (place.nodes == 1 && job)
    place.rendezvous.port = derived_port(stable_hash(*job));
  else if (place.nodes == 1)
    place.rendezvous.port = kDefaultPort;
  else
    place.rendezvous.host.clear();  // MPI does not say where rank 0 is
  return place;
}

Found from_slurm(const Variables& variables) {
  if (!in_slurm_step(variables)) return std::nullopt;
  constexpr std::string_view kWho = "Slurm";
  ProcessPlace place;
  place.source = PlaceSource::slurm;
  place.rank = variables.need_number("SLURM_PROCID", kWho);
  // SLURM_NTASKS is what the job asked for; the step may have fewer.
  const auto tasks = variables.number("SLURM_STEP_NUM_TASKS");
  place.world = tasks ? *tasks : variables.need_number("SLURM_NTASKS", kWho);
  place.local_rank = variables.need_number("SLURM_LOCALID", kWho);
  place.node = variables.need_number("SLURM_NODEID", kWho);
  const std::string_view list_name =
      variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const auto nodes = expand_node_list(variables.need_text(list_name, kWho), list_name);
  place.nodes = static_cast<int>(nodes.size());
  if (const auto counts = variables.text("SLURM_STEP_TASKS_PER_NODE")) {
    const auto expanded = expand_task_counts(*counts, "SLURM_STEP_TASKS_PER_NODE");
    if (static_cast<std::size_t>(place.node) >= expanded.size())
      throw UserError(fmt::format("SLURM_NODEID={} is not among SLURM_STEP_TASKS_PER_NODE={}",
                                  place.node, *counts));
    place.local_size = expanded[static_cast<std::size_t>(place.node)];
  } else {
    if (place.world % place.nodes != 0)
      throw UserError(
          fmt::format("SLURM_STEP_TASKS_PER_NODE is not set, and {} tasks are not as "
                      "many on each of {} nodes",
                      place.world, place.nodes));
    place.local_size = place.world / place.nodes;
  }
  const int job = variables.need_number("SLURM_JOB_ID", kWho);
  const int step = variables.need_number("SLURM_STEP_ID", kWho);
  place.run_id = fmt::format("slurm-{}.{}", job, step);
  place.generation = variables.number("SLURM_RESTART_COUNT").value_or(0);
  // Steps of one job may run side by side.
  place.rendezvous = master(variables).value_or(
      Endpoint{nodes.front(), derived_port(std::uint64_t(job) + 1117 * std::uint64_t(step))});
  return place;
}

/// One process a pod: then what counts pods counts processes.
Found from_kubernetes(const Variables& variables) {
  ProcessPlace place;
  place.source = PlaceSource::kubernetes;
  std::string_view who;
  if (variables.has("PET_NNODES")) {
    who = "PET_NNODES";
    const std::string per_node = variables.text("PET_NPROC_PER_NODE").value_or("1");
    if (per_node != "1")
      throw UserError(fmt::format(
          "PET_NPROC_PER_NODE={} asks for several processes in this pod: start megatrain launch "
          "--nproc-per-node N, which takes the rest from the PET_ variables",
          per_node));
    place.world = variables.need_number("PET_NNODES", "Kubernetes");
    const std::string_view rank_name =
        variables.has("PET_NODE_RANK") ? "PET_NODE_RANK" : "JOB_COMPLETION_INDEX";
    place.rank = variables.need_number(rank_name, who);
    variables.require_agrees("JOB_COMPLETION_INDEX", place.rank, rank_name);
    if (place.world > 1)
      place.rendezvous = Endpoint{
          variables.need_text("PET_MASTER_ADDR", who),
          static_cast<std::uint16_t>(variables.number("PET_MASTER_PORT").value_or(kDefaultPort))};
    place.run_id = variables.text("PET_RDZV_ID").value_or("pet");
  } else if (variables.has("RANK") && variables.has("WORLD_SIZE") &&
             variables.has("KUBERNETES_PORT") && !variables.has("LOCAL_RANK")) {
    who = "PyTorchJob";
    place.rank = variables.need_number("RANK", who);
    place.world = variables.need_number("WORLD_SIZE", who);
    if (place.world > 1) place.rendezvous = need_master(variables, who);
    place.run_id = "pytorchjob";
  } else if (variables.has("JOB_COMPLETION_INDEX") && variables.has("MEGATRAIN_WORLD_SIZE")) {
    // An indexed job does not say its size: without one these are runs of their own.
    who = "JOB_COMPLETION_INDEX";
    place.rank = variables.need_number("JOB_COMPLETION_INDEX", who);
    place.world = variables.need_number("MEGATRAIN_WORLD_SIZE", who);
    if (place.world > 1)
      place.rendezvous = parse_endpoint(variables.need_text("MEGATRAIN_RENDEZVOUS", who),
                                        "MEGATRAIN_RENDEZVOUS", kDefaultPort);
    place.run_id = variables.text("MEGATRAIN_RUN_ID").value_or("indexed-job");
  } else {
    return std::nullopt;
  }
  place.node = place.rank;
  place.nodes = place.world;
  return place;
}

Found from_command_line(const PlaceOverrides& overrides) {
  if (!overrides.rank) return std::nullopt;
  ProcessPlace place;
  place.source = PlaceSource::command_line;
  place.rank = *overrides.rank;
  place.run_id = "run";
  return place;
}

/// RANK and WORLD_SIZE that someone exported for another program must not be met in silence.
void refuse_strays(const Variables& variables, const ProcessPlace& place) {
  switch (place.source) {
    case PlaceSource::mpi:
    case PlaceSource::slurm:
      variables.require_agrees("RANK", place.rank, fmt::format("{}'s rank", name(place.source)));
      variables.require_agrees("WORLD_SIZE", place.world,
                               fmt::format("{}'s world size", name(place.source)));
      return;
    case PlaceSource::single:
      if (variables.has("RANK") && variables.has("WORLD_SIZE"))
        throw UserError(
            "RANK and WORLD_SIZE are set, but not LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, "
            "so that it is unknown whether they count processes or nodes: set all five, or "
            "MEGATRAIN_RANK and its kin, or unset them");
      if (variables.has("MEGATRAIN_WORLD_SIZE"))
        throw UserError("MEGATRAIN_WORLD_SIZE is set, but not MEGATRAIN_RANK");
      return;
    default:
      return;
  }
}

void apply(const PlaceOverrides& overrides, ProcessPlace& place, const Variables& variables) {
  if (overrides.world) place.world = *overrides.world;
  const bool resized =
      overrides.rank || overrides.world || overrides.local_rank || overrides.local_size;
  if (overrides.local_rank) place.local_rank = *overrides.local_rank;
  if (overrides.local_size) place.local_size = *overrides.local_size;
  if (overrides.rank) place.rank = *overrides.rank;
  if (resized) derive_nodes(place, "the command line");
  if (overrides.rendezvous)
    place.rendezvous = parse_endpoint(*overrides.rendezvous, "--rendezvous", kDefaultPort);
  else if (const auto own = variables.text("MEGATRAIN_RENDEZVOUS"))
    place.rendezvous = parse_endpoint(*own, "MEGATRAIN_RENDEZVOUS", kDefaultPort);
  if (overrides.run_id)
    place.run_id = *overrides.run_id;
  else if (const auto own = variables.text("MEGATRAIN_RUN_ID"))
    place.run_id = *own;
}

void check(const ProcessPlace& place) {
  const auto require_below = [&](std::string_view what, int value, std::string_view of, int limit) {
    if (limit < 1)
      throw UserError(
          fmt::format("{} is {} (from {}); it must be at least 1", of, limit, name(place.source)));
    if (value < 0 || value >= limit)
      throw UserError(fmt::format("{} {} does not fit {} {} (from {})", what, value, of, limit,
                                  name(place.source)));
  };
  require_below("rank", place.rank, "world size", place.world);
  require_below("local rank", place.local_rank, "local size", place.local_size);
  require_below("node rank", place.node, "node count", place.nodes);
  if (place.local_size > place.world)
    throw UserError(fmt::format("local size {} is larger than world size {} (from {})",
                                place.local_size, place.world, name(place.source)));
  if (place.world > 1 && (place.rendezvous.host.empty() || place.rendezvous.port == 0))
    throw UserError(fmt::format(
        "{} says rank {} of {}, but not where to meet: set MEGATRAIN_RENDEZVOUS=HOST:PORT to the "
        "node of rank 0 and a free port there",
        name(place.source), place.rank, place.world));
}

}  // namespace

std::string_view name(PlaceSource source) {
  switch (source) {
    case PlaceSource::command_line:
      return "the command line";
    case PlaceSource::own:
      return "MEGATRAIN_ variables";
    case PlaceSource::torchrun:
      return "torchrun";
    case PlaceSource::mpi:
      return "MPI";
    case PlaceSource::slurm:
      return "Slurm";
    case PlaceSource::kubernetes:
      return "Kubernetes";
    case PlaceSource::single:
      return "nobody";
  }
  return "nobody";
}

std::string describe(const ProcessPlace& place) {
  return fmt::format("rank {} of {}, local rank {} of {} on node {} of {} (from {})", place.rank,
                     place.world, place.local_rank, place.local_size, place.node, place.nodes,
                     name(place.source));
}

ProcessPlace detect_place(const Environment& environment, const PlaceOverrides& overrides) {
  const Variables variables(environment);
  Found found = from_command_line(overrides);
  for (const auto ask : {from_own, from_torchrun, from_mpi, from_slurm, from_kubernetes})
    if (!found) found = ask(variables);
  ProcessPlace place = found.value_or(ProcessPlace{});
  refuse_strays(variables, place);
  apply(overrides, place, variables);
  check(place);
  return place;
}

Environment own_environment(const ProcessPlace& place) {
  return {{"MEGATRAIN_RANK", std::to_string(place.rank)},
          {"MEGATRAIN_WORLD_SIZE", std::to_string(place.world)},
          {"MEGATRAIN_LOCAL_RANK", std::to_string(place.local_rank)},
          {"MEGATRAIN_LOCAL_SIZE", std::to_string(place.local_size)},
          {"MEGATRAIN_NODE_RANK", std::to_string(place.node)},
          {"MEGATRAIN_NODES", std::to_string(place.nodes)},
          {"MEGATRAIN_GENERATION", std::to_string(place.generation)},
          {"MEGATRAIN_RUN_ID", place.run_id},
          {"MEGATRAIN_RENDEZVOUS", to_text(place.rendezvous)},
          {"MEGATRAIN_RENDEZVOUS_SERVED", place.served ? "1" : "0"}};
}

}  // namespace megatrain::parallel
