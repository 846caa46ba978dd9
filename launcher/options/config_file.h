#pragma once
/// @file
/// The options of a command as a TOML file.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option.h"

namespace megatrain::launcher {

/// Sets the options that table [train] of `file` names, but for those that `given` says the command
/// line has set. @throws UserError for unknown tables and keys, by name and line
void read_config(const std::string& file, const std::vector<Option>& options,
                 const std::function<bool(const Option&)>& given);

/// The options' values as read_config reads them; those not given as comments.
/// @param notes  lines put in front as comments
std::string format_config(const std::vector<Option>& options,
                          const std::vector<std::string>& notes);

}  // namespace megatrain::launcher
