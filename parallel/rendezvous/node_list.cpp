#include "parallel/rendezvous/node_list.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"

namespace megatrain::parallel {

namespace {

constexpr std::size_t kMost = 65536;

[[noreturn]] void refuse(std::string_view where, std::string_view list, std::string_view why) {
  throw UserError(fmt::format("{}: '{}' cannot be read: {}", where, list.substr(0, 200), why));
}

std::size_t number(std::string_view text, std::string_view where, std::string_view list) {
  std::size_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || rest != text.data() + text.size())
    refuse(where, list, fmt::format("'{}' is not a number", text));
  return value;
}

/// Cuts at commas that are outside brackets.
std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    parts.push_back(list.substr(start, i - start));
    start = i + 1;
  }
  return parts;
}

/// "08-10,20" -> 08, 09, 10, 20: numbers keep the width of the range's first.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view where,
                                       std::string_view list) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(ranges)) {
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
    const std::size_t begin = number(first, where, list);
    const std::size_t end = number(last, where, list);
    if (end < begin || end - begin >= kMost)
      refuse(where, list, fmt::format("the range {} is none", range));
    for (std::size_t i = begin; i <= end; ++i)
      numbers.push_back(fmt::format("{:0{}}", i, first.size()));
  }
  return numbers;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, std::string_view where) {
  std::vector<std::string> nodes;
  for (const std::string_view part : split(list)) {
    std::vector<std::string> names{""};
    std::string_view rest = part;
    while (!rest.empty()) {
      const std::size_t open = rest.find('[');
      for (std::string& name : names) name += rest.substr(0, open);
      if (open == std::string_view::npos) break;
      const std::size_t close = rest.find(']', open);
      if (close == std::string_view::npos) refuse(where, list, "a bracket is not closed");
      const std::vector<std::string> numbers =
          expand_ranges(rest.substr(open + 1, close - open - 1), where, list);
      if (names.size() * numbers.size() > kMost) refuse(where, list, "it names too many nodes");
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& text : numbers) longer.push_back(name + text);
      names = std::move(longer);
      rest = rest.substr(close + 1);
    }
    if (part.empty()) refuse(where, list, "a name is empty");
    nodes.insert(nodes.end(), names.begin(), names.end());
    if (nodes.size() > kMost) refuse(where, list, "it names too many nodes");
  }
  return nodes;
}

std::vector<int> expand_task_counts(std::string_view list, std::string_view where) {
  std::vector<int> counts;
  for (std::string_view part : split(list)) {
    std::size_t times = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos) {
      if (!part.ends_with(')')) refuse(where, list, "a parenthesis is not closed");
      times = number(part.substr(open + 2, part.size() - open - 3), where, list);
      part = part.substr(0, open);
    }
    const std::size_t count = number(part, where, list);
    if (count > kMost || times > kMost || counts.size() + times > kMost)
      refuse(where, list, "the numbers are too large");
    counts.insert(counts.end(), times, static_cast<int>(count));
  }
  return counts;
}

}  // namespace megatrain::parallel
