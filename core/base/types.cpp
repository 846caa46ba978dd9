#include "core/base/types.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace megatrain {

namespace {
constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string ceil_to_mebibytes(std::int64_t bytes) {
  return fmt::format("{}MiB", ceil_div(bytes, std::int64_t{1} << 20));
}

std::int64_t parse_bytes(std::string_view text) {
  const auto refuse = [&] {
    return UserError(fmt::format(
        "'{}' is not a size: write bytes or a number with KiB, MiB, GiB or TiB, as in 8GiB", text));
  };
  double value = 0.0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [rest, status] = std::from_chars(begin, end, value);
  if (status != std::errc{} || !std::isfinite(value) || value < 0) throw refuse();
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  double scale = 1.0;
  if (!suffix.empty() && suffix != "B") {
    const std::string_view letters = "KMGT";
    const auto power =
        letters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix.front()))));
    const std::string_view tail = suffix.substr(1);
    if (power == std::string_view::npos || !(tail.empty() || tail == "iB" || tail == "B"))
      throw refuse();
    scale = std::pow(1024.0, static_cast<double>(power + 1));
  }
  const double bytes = value * scale;
  if (bytes >= 9.2e18) throw refuse();
  return static_cast<std::int64_t>(bytes);
}

}  // namespace megatrain
