#pragma once
/// @file
/// What `launch` is asked to do.

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/option.h"

namespace megatrain::launcher {

struct LaunchOptions {
  Index nproc_per_node = 1;
  std::optional<Index> nnodes, node_rank;
  std::optional<std::string> rendezvous, run_id;
  Index join_timeout = 300;  ///< seconds
  Index max_restarts = 0;
  Index grace = 30;  ///< seconds
  std::optional<std::string> log_dir;
  bool dry_run = false;
  std::vector<std::string> command;  ///< what follows the options
};

/// A table over the fields of `options`, which must outlive it.
std::vector<Option> launch_table(LaunchOptions& options);

}  // namespace megatrain::launcher
