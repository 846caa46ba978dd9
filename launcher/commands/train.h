#pragma once
/// @file
/// `megatrain train`: options in, run folder out.

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

/// Trains and leaves OUT/model, OUT/metrics.jsonl, OUT/config.toml and OUT/numerics.key. A stop
/// signal ends the run at a step boundary with the model saved; that counts as success.
/// @returns the exit code
int train(const RunOptions& options);

}  // namespace megatrain::launcher
