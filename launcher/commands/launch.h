#pragma once
/// @file
/// `megatrain launch`: starts the ranks of a run on this node, and looks after them.

#include "launcher/options/launch_options.h"

namespace megatrain::launcher {

/// @param own_commands  names that mean this program's own commands; others are programs
/// @returns the code of the first rank that failed, 75 when one asks to be queued again, else 0
/// @throws UserError for what cannot be started
int launch(const LaunchOptions& options, const std::vector<std::string>& own_commands);

}  // namespace megatrain::launcher
