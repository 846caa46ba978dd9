#pragma once
/// @file
/// The program's command line: subcommands, each with a table of options.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/option.h"

namespace megatrain::launcher {

struct Command {
  std::string name;
  std::string help;
  std::vector<Option> options;
  /// Filled by the option `config`, when the command has one: a TOML file whose values count where
  /// the command line says nothing.
  const std::optional<std::string>* config = nullptr;
  std::function<int()> run = {};  ///< returns the exit code
  /// Filled with what follows the options, from the first word that is none of them: another
  /// command with its own options.
  std::vector<std::string>* rest = nullptr;
};

/// Parses, and runs the command that is named. Help and version go to stdout, mistakes to stderr.
/// @returns the command's exit code, or 2 for a command line that cannot be understood
/// @throws UserError for values that are none, and whatever the command throws
int run_command_line(const std::vector<Command>& commands, int argc, const char* const* argv);

}  // namespace megatrain::launcher
