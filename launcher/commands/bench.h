#pragma once
/// @file
/// `megatrain bench`: what this machine can do, what a training step makes of it, and where the
/// rest of the step went.

#include "launcher/options/bench_options.h"

namespace megatrain::launcher {

void bench(const BenchOptions& options);

}  // namespace megatrain::launcher
