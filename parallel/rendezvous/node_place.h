#pragma once
/// @file
/// Which node of how many this machine is, for the program that starts the ranks of a node.

#include <optional>
#include <string>

#include "parallel/rendezvous/endpoint.h"
#include "parallel/rendezvous/place.h"
#include "parallel/rendezvous/variables.h"

namespace megatrain::parallel {

struct NodePlace {
  int node = 0, nodes = 1;
  std::string run_id;                   ///< empty: nobody says one
  Endpoint rendezvous{"127.0.0.1", 0};  ///< served by node 0
  PlaceSource source = PlaceSource::single;
  bool operator==(const NodePlace&) const = default;
};

struct NodeOverrides {
  std::optional<int> node = {}, nodes = {};
  std::optional<std::string> rendezvous = {}, run_id = {};
};

/// Finds this node's place: from the command line, Slurm (a step with one task a node), Kubernetes
/// (PET_ variables, a PyTorchJob, whose RANK and WORLD_SIZE count nodes, or an indexed job), or it
/// is the only one.
/// @throws UserError as detect_place does, and where this process is itself a rank
NodePlace detect_node(const Environment& environment, const NodeOverrides& overrides = {});

}  // namespace megatrain::parallel
