#pragma once
/// @file
/// What the options of a run say together.

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

/// Refuses options that exclude each other, and those that others leave without any effect.
/// @throws UserError naming the options
void check_together(const RunOptions& options);

}  // namespace megatrain::launcher
