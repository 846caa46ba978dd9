#pragma once
/// @file
/// What the options of a run say together.

#include <string>
#include <vector>

#include "launcher/options/run_options.h"

namespace megatrain::launcher {

/// Refuses options that exclude each other, and those that others leave without any effect.
/// @returns warnings
/// @throws UserError naming the options
std::vector<std::string> check_together(const RunOptions& options);

}  // namespace megatrain::launcher
