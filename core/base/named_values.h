#pragma once
/// @file
/// Names with values, in order: options that are recorded, and the lines of a numerics key.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatrain {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// The first value of that name; nullptr when there is none.
inline const std::string* find_value(const NamedValues& values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &NamedValues::value_type::first);
  return found == values.end() ? nullptr : &found->second;
}

}  // namespace megatrain
