#pragma once
/// @file
/// Files that a command is asked to write at its end.

#include <optional>
#include <string>
#include <string_view>

namespace megatrain::launcher {

/// Refuses what can be known before the work about where its result shall go.
/// @param option  for messages: "--trace"
/// @throws UserError for a folder, a file in a folder that does not exist, and one that cannot be
/// written
void check_output_file(std::string_view option, const std::optional<std::string>& file);

}  // namespace megatrain::launcher
