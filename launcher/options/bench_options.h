#pragma once
/// @file
/// What `bench` is asked to do, and the table that fills it.

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

struct BenchOptions {
  /// What train would be asked for. `steps` and `rates` are not used: those below are.
  RunOptions run = [] {
    RunOptions shared;
    shared.model = "llama-tiny";
    return shared;
  }();
  Index steps = 10;  ///< timed ones; 0: ceilings only
  Index warmup_steps = 3;
  std::optional<Index> tokens;       ///< of the micro-batch that ceilings are measured with
  std::optional<std::string> disk;   ///< a folder; absent: that of the rates file
  Index gpus = 1;                    ///< that copy together
  std::optional<std::string> rates;  ///< to write
  std::optional<std::string> json;   ///< to write
};

/// Over the fields of `options`, which must outlive it.
std::vector<Option> bench_table(BenchOptions& options);

}  // namespace megatrain::launcher
