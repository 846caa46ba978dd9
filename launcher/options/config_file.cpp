#include "launcher/options/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/file.h"
#include "launcher/options/toml.h"

namespace megatrain::launcher {

namespace {

constexpr std::string_view kTable = "train";
constexpr Index kLargestConfig = Index{1} << 20;

const Option& find(const std::vector<Option>& options, const TomlEntry& entry,
                   const std::string& where) {
  for (const Option& option : options)
    if (option.in_file && option.name == entry.key) return option;
  std::vector<std::string_view> names;
  for (const Option& option : options)
    if (option.in_file) names.push_back(option.name);
  throw UserError(
      fmt::format("{}: unknown key; [{}] takes {}", where, kTable, fmt::join(names, ", ")));
}

std::string value_text(const Option& option, const std::vector<std::string>& values) {
  if (is_bare(option)) return values.front();
  if (!is_list(option)) return toml_string(values.front());
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(toml_string(value));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

}  // namespace

void read_config(const std::string& file, const std::vector<Option>& options,
                 const std::function<bool(const Option&)>& given) {
  for (const TomlEntry& entry : parse_toml(io::read_whole_file(file, kLargestConfig), file)) {
    const std::string where = fmt::format("{} line {}: '{}'", file, entry.line, entry.key);
    if (entry.table != kTable)
      throw UserError(fmt::format(
          "{} stands {}; options belong in table [{}]", where,
          entry.table.empty() ? "before any table" : fmt::format("in table [{}]", entry.table),
          kTable));
    const Option& option = find(options, entry, where);
    if (entry.array && !is_list(option))
      throw UserError(fmt::format("{}: takes one value, not an array", where));
    if (!given(option)) set(option, entry.values, where);
  }
}

std::string format_config(const std::vector<Option>& options,
                          const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += fmt::format("# {}\n", note);
  text += fmt::format("[{}]\n", kTable);
  for (const Option& option : options) {
    if (!option.in_file) continue;
    const auto values = texts(option);
    text += values ? fmt::format("{} = {}\n", option.name, value_text(option, *values))
                   : fmt::format("# {} is not set\n", option.name);
  }
  return text;
}

}  // namespace megatrain::launcher
