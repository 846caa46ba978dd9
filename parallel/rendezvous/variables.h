#pragma once
/// @file
/// Environment variables as a value, read with errors that name them.

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace megatrain::parallel {

/// The environment of a process. The program takes it once; nothing here looks it up by itself.
using Environment = std::map<std::string, std::string, std::less<>>;

/// Reads variables. An empty one counts as not set, as launchers leave them.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool has(std::string_view name) const { return text(name).has_value(); }
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
  /// A whole number from 0 to 2^31 - 1. @throws UserError when it is none
  [[nodiscard]] std::optional<int> number(std::string_view name) const;
  /// @throws UserError when it is missing. @param launcher  who should have set it
  [[nodiscard]] int need_number(std::string_view name, std::string_view launcher) const;
  [[nodiscard]] std::string need_text(std::string_view name, std::string_view launcher) const;
  /// @throws UserError unless the variable is missing or equal to `expected`, which `other` says
  void require_agrees(std::string_view name, int expected, std::string_view other) const;

 private:
  const Environment& environment_;
};

/// A hash that is the same on every machine (FNV-1a, 64 bits).
std::uint64_t stable_hash(std::string_view text);

}  // namespace megatrain::parallel
