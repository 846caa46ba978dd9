#include "launcher/session/numerics_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/plan/planner.h"
#include "io/checkpoint/training_record.h"
#include "io/file.h"
#include "io/text.h"

namespace megatrain::launcher {

namespace {

constexpr Index kLargestKey = Index{1} << 20;

NamedValues parse(std::string_view text, const std::string& source) {
  NamedValues lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const auto equals = line.find(" = ");
    if (equals == std::string_view::npos)
      throw UserError(
          fmt::format("{}: {} is not 'name = value'; a key is the numerics.key of a run folder",
                      source, io::quote(line)));
    lines.emplace_back(line.substr(0, equals), line.substr(equals + 3));
  }
  // Written before there was a choice.
  for (const std::string_view format : io::kFormatOptions)
    if (find_value(lines, format) == nullptr) lines.emplace_back(format, "fp32");
  return lines;
}

}  // namespace

NamedValues SavedKey::forced() const {
  NamedValues choices;
  for (const auto& line : lines)
    if (std::ranges::any_of(forced_choices(), [&](const auto& c) { return c.name == line.first; }))
      choices.push_back(line);
  return choices;
}

void SavedKey::refuse(const std::string& differences) const {
  throw UserError(fmt::format(
      "this run would not give the same bits as the one of {}. What decides them differs:{}\n"
      "Match it, or {}",
      source, differences, remedy));
}

void SavedKey::require_world(const std::string& world, Index parts) const {
  std::string differences;
  const auto compare = [&](std::string_view name, std::string_view meaning,
                           const std::string& here) {
    const std::string* saved = find_value(lines, name);
    if (saved != nullptr && *saved != here)
      differences += fmt::format("\n  {} ({}): {} there, {} here", name, meaning, *saved, here);
  };
  compare("parts", "--tensor-parallel", std::to_string(parts));
  compare("world", "replicas x ranks of a shard group", world);
  if (!differences.empty()) refuse(differences);
}

void SavedKey::require_choices(const NamedValues& asked) const {
  std::string differences;
  for (const auto& [name, value] : forced())
    if (const std::string* here = find_value(asked, name); here != nullptr && *here != value)
      differences += fmt::format("\n  {}: {} there, {} here", name, value, *here);
  if (!differences.empty()) refuse(differences);
}

void SavedKey::require_equal(const std::string& key, bool device_known) const {
  const NamedValues now = parse(key, "this run's key");
  std::string differences;
  const auto differ = [&](const std::string& name, const std::string* saved,
                          const std::string* here) {
    if (name == "device" && !device_known) return;
    if (std::ranges::find(free, name) != free.end()) return;
    if (saved != nullptr && here != nullptr && *saved == *here) return;
    differences +=
        fmt::format("\n  {}: {} there, {} here", name, saved != nullptr ? *saved : "missing",
                    here != nullptr ? *here : "missing");
  };
  for (const auto& [name, value] : lines) differ(name, &value, find_value(now, name));
  for (const auto& [name, value] : now)
    if (find_value(lines, name) == nullptr) differ(name, nullptr, &value);
  if (!differences.empty()) refuse(differences);
}

SavedKey parse_key(const std::string& text, const std::string& source, const std::string& remedy) {
  SavedKey key{.source = source, .remedy = remedy, .lines = parse(text, source)};
  if (find_value(key.lines, "micro-batch") == nullptr)
    throw UserError(fmt::format(
        "{} is no numerics key: it has no line 'micro-batch'; a key is the numerics.key of a run "
        "folder",
        source));
  return key;
}

SavedKey read_key(const std::string& file) {
  return parse_key(io::read_whole_file(file, kLargestKey), file, "leave out --key");
}

}  // namespace megatrain::launcher
