#include "launcher/options/launch_options.h"

namespace megatrain::launcher {

namespace {

constexpr const char* kRanks = "Ranks";
constexpr const char* kNodes = "Nodes";
constexpr const char* kFailures = "Failures";
constexpr double kMostRanks = 65536;
/// A day.
constexpr double kMostSeconds = 86400;

}  // namespace

std::vector<Option> launch_table(LaunchOptions& o) {
  return {
      {"nproc-per-node",
       kRanks,
       "N",
       "Ranks to start on this node",
       &o.nproc_per_node,
       {},
       1.0,
       kMostRanks},
      {"log-dir", kRanks, "FOLDER",
       "Write what each rank prints to FOLDER/generation-G/rank-N.log too", &o.log_dir},
      {"dry-run", kRanks, "", "Print what each rank would be started with, and start nothing",
       &o.dry_run},
      {"nnodes",
       kNodes,
       "M",
       "Nodes of the run, with one launch on each; absent: what Slurm or Kubernetes say, else 1",
       &o.nnodes,
       {},
       1.0,
       kMostRanks},
      {"node-rank",
       kNodes,
       "R",
       "Which of them this is, from 0",
       &o.node_rank,
       {},
       0.0,
       kMostRanks},
      {"rendezvous", kNodes, "HOST:PORT",
       "Where the nodes meet: node 0 and a port that is free there", &o.rendezvous},
      {"run-id", kNodes, "NAME", "Tells this run from others; the same on each node", &o.run_id},
      {"join-timeout",
       kNodes,
       "SECONDS",
       "How long to wait for the other nodes",
       &o.join_timeout,
       {},
       1.0,
       kMostSeconds},
      {"max-restarts",
       kFailures,
       "K",
       "How often the ranks are started again, all together, when one has failed",
       &o.max_restarts,
       {},
       0.0,
       kMostRanks},
      {"grace",
       kFailures,
       "SECONDS",
       "What ranks have between SIGTERM and SIGKILL when another has failed",
       &o.grace,
       {},
       0.0,
       kMostSeconds},
  };
}

}  // namespace megatrain::launcher
