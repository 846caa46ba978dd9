#include "launcher/options/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "launcher/options/config_file.h"

namespace megatrain::launcher {

namespace {

/// A command with CLI11's view of it.
struct ParsedCommand {
  const Command* command;
  CLI::App* app;
  std::vector<CLI::Option*> options;  ///< in the order of command->options
};

/// Columns of the names in --help, and of the words beside them.
constexpr std::size_t kNameWidth = 34;
constexpr std::size_t kHelpWidth = 64;

/// Breaks lines between words so that none is longer than kHelpWidth, as far as words allow.
std::string wrap(std::string_view text) {
  std::string wrapped;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    if (column > 0 && column + 1 + end > kHelpWidth) {
      wrapped += '\n';
      column = 0;
    } else if (column > 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += text.substr(0, end);
    column += end;
    if (end < text.size() && text[end] == '\n') {
      wrapped += '\n';
      column = 0;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrapped;
}

std::string description(const Option& option) {
  std::string text = option.help;
  if (option.required)
    text += " (required)";
  else if (const auto values = texts(option); values && !is_flag(option))
    text += fmt::format(" (default: {})", fmt::join(*values, " "));
  return wrap(text);
}

/// What a person calls the option: --seq-len, or PATH where it has a place instead of a name.
std::string spelled(const Option& option) {
  return option.positional ? option.value : "--" + option.name;
}

/// Every value is taken as text here; set() gives it its type, as it does for files.
CLI::Option* add_option(CLI::App& app, const Option& option) {
  const std::string name = spelled(option);
  const std::string help = description(option);
  CLI::Option* added = nullptr;
  if (is_flag(option)) {
    added = app.add_flag(name, help);
  } else {
    added = app.add_option(name, [](const CLI::results_t&) { return true; }, help);
    if (option.positional)
      added->type_name("");  // its name says it
    else
      added->type_name(option.allowed.empty() ? option.value
                                              : fmt::format("{}", fmt::join(option.allowed, "|")));
    if (is_list(option))
      added->expected(1, CLI::detail::expected_max_vector_size)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->allow_extra_args();
    else  // The last one wins, so that scripts can hand on options that override their own.
      added->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  added->group(option.group);
  return added;
}

ParsedCommand add_command(CLI::App& app, const Command& command) {
  ParsedCommand parsed{&command, app.add_subcommand(command.name, command.help), {}};
  parsed.app->get_formatter()->column_width(kNameWidth);
  for (const Option& option : command.options)
    parsed.options.push_back(add_option(*parsed.app, option));
  if (command.rest != nullptr) {
    parsed.app->prefix_command();
    parsed.app->footer("After the options follows a command with its own: megatrain " +
                       command.name + " [OPTIONS] COMMAND ARGUMENTS...");
  }
  return parsed;
}

void fill(const ParsedCommand& parsed) {
  const std::vector<Option>& options = parsed.command->options;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const CLI::Option& given = *parsed.options[i];
    if (given.count() == 0) continue;
    set(options[i], given.reduced_results(), spelled(options[i]));
  }
  if (parsed.command->rest != nullptr) *parsed.command->rest = parsed.app->remaining();
  const auto* config = parsed.command->config;
  if (config != nullptr && *config)
    read_config(**config, options, [&](const Option& option) {
      return parsed.options[static_cast<std::size_t>(&option - options.data())]->count() > 0;
    });
  for (const Option& option : options)
    if (option.required && !texts(option))
      throw UserError(fmt::format("megatrain {} needs {}{}: {}", parsed.command->name,
                                  spelled(option), option.positional ? "" : " " + option.value,
                                  option.help));
}

}  // namespace

int run_command_line(const std::vector<Command>& commands, int argc, const char* const* argv) {
  CLI::App app(
      "MegaTrain trains language models whose states do not fit on the GPU: host memory holds "
      "them, and the layers pass through the device.",
      "megatrain");
  app.set_version_flag("--version", "megatrain " MEGATRAIN_VERSION);
  app.require_subcommand(-1);
  app.footer("Run 'megatrain COMMAND --help' for the options of a command.");
  std::vector<ParsedCommand> parsed;
  for (const Command& command : commands) parsed.push_back(add_command(app, command));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    // CLI11's own message has them in another order.
    const auto one = std::ranges::find_if(parsed, [](const auto& p) { return p.app->parsed(); });
    const bool in_command = one != parsed.end();
    throw UserError(fmt::format(
        "megatrain{} does not know what to do with: {}\nRun with --help for what can be given",
        in_command ? " " + one->command->name : "",
        fmt::join((in_command ? *one->app : app).remaining(), " ")));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw UserError(fmt::format("{}\nRun with --help for what can be given", error.what()));
  }
  for (const ParsedCommand& one : parsed) {
    if (!one.app->parsed()) continue;
    fill(one);
    return one.command->run();
  }
  throw UserError("no command is given\n" + app.help());
}

}  // namespace megatrain::launcher
