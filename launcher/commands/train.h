#pragma once
/// @file
/// `megatrain train`: options in, run folder out.

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

/// Trains, or goes on with a run, and leaves OUT/model, OUT/checkpoints, OUT/metrics.jsonl,
/// OUT/config.toml and OUT/numerics.key. A stop signal ends the run at a step boundary with the
/// model saved.
/// @returns the exit code: 0 when all steps are done; 75 after SIGTERM or SIGUSR1, when the
///          checkpoint is saved from which the same command goes on; 128 + the signal after SIGINT
///          or SIGHUP
int train(const RunOptions& options);

}  // namespace megatrain::launcher
