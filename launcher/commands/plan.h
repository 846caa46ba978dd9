#pragma once
/// @file
/// `megatrain plan`: what `train` with the same options would allocate and take.

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

void plan(const RunOptions& options);

}  // namespace megatrain::launcher
