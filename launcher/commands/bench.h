#pragma once
/// @file
/// `megatrain bench`: the rates that predictions divide by, measured here.

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

void bench(const BenchOptions& options);

}  // namespace megatrain::launcher
