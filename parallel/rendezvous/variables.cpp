#include "parallel/rendezvous/variables.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"

namespace megatrain::parallel {

std::optional<std::string> Variables::text(std::string_view name) const {
  const auto found = environment_.find(name);
  if (found == environment_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> Variables::number(std::string_view name) const {
  const std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  int result = 0;
  const char* end = value->data() + value->size();
  const auto [rest, status] = std::from_chars(value->data(), end, result);
  if (status != std::errc{} || rest != end || result < 0)
    throw UserError(fmt::format("{}='{}' is not a whole number from 0 on", name, *value));
  return result;
}

int Variables::need_number(std::string_view name, std::string_view launcher) const {
  if (const std::optional<int> value = number(name)) return *value;
  throw UserError(
      fmt::format("{} is not set, though {} sets the others; set it, or start the "
                  "processes with megatrain launch",
                  name, launcher));
}

std::string Variables::need_text(std::string_view name, std::string_view launcher) const {
  if (std::optional<std::string> value = text(name)) return *std::move(value);
  throw UserError(
      fmt::format("{} is not set, though {} sets the others; set it, or start the "
                  "processes with megatrain launch",
                  name, launcher));
}

void Variables::require_agrees(std::string_view name, int expected, std::string_view other) const {
  const std::optional<int> value = number(name);
  if (value && *value != expected)
    throw UserError(
        fmt::format("{}={} contradicts {}={}; unset the one that is left over from "
                    "another launcher",
                    name, *value, other, expected));
}

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : text) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace megatrain::parallel
