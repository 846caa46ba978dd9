#pragma once
/// @file
/// Which process of how many this one is, as the program that started it says through the
/// environment.

#include <optional>
#include <string>
#include <string_view>

#include "parallel/rendezvous/endpoint.h"
#include "parallel/rendezvous/variables.h"

namespace megatrain::parallel {

/// Who said so, in the order in which they are asked.
enum class PlaceSource { command_line, own, torchrun, mpi, slurm, kubernetes, single };
std::string_view name(PlaceSource source);

/// The place of one process in a run. Ranks count from 0 over all processes, local ranks over those
/// of one node.
struct ProcessPlace {
  int rank = 0, world = 1;
  int local_rank = 0, local_size = 1;
  int node = 0, nodes = 1;
  int generation = 0;  ///< how often the run was restarted
  std::string run_id = "single";
  Endpoint rendezvous{"127.0.0.1", 0};
  bool served = false;  ///< the rendezvous is served by who started us; otherwise by rank 0
  PlaceSource source = PlaceSource::single;
  bool operator==(const ProcessPlace&) const = default;
};

/// "rank 3 of 8, local rank 1 of 2 on node 1 of 4 (from torchrun)"
std::string describe(const ProcessPlace& place);

/// What the command line says; each counts before the environment.
struct PlaceOverrides {
  std::optional<int> rank = {}, world = {}, local_rank = {}, local_size = {};
  std::optional<std::string> rendezvous = {}, run_id = {};
};

/// The port where nobody says one.
constexpr std::uint16_t kDefaultPort = 29500;

/// Finds this process's place. The first of these decides that says a rank: the command line,
/// MEGATRAIN_RANK, torchrun, Open MPI or a PMI launcher, a Slurm step, Kubernetes; otherwise the
/// process is alone. Ranks count node by node.
/// @throws UserError for what is incomplete, contradicts itself, or counts nodes where processes
///         are meant, by the names of the variables
ProcessPlace detect_place(const Environment& environment, const PlaceOverrides& overrides = {});

/// The variables by which detect_place finds exactly this place (source: own).
Environment own_environment(const ProcessPlace& place);

}  // namespace megatrain::parallel
