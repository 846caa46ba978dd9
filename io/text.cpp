#include "io/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace megatrain::io {

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string quoted = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      quoted += fmt::format("\\x{:02x}", byte);
    else
      quoted += c;
  }
  if (text.size() > kLongest) quoted += "...";
  return quoted + "'";
}

std::string shape_text(const std::vector<Index>& shape) {
  const std::span<const Index> shown(shape.data(), std::min<std::size_t>(shape.size(), 16));
  return fmt::format("[{}{}]", fmt::join(shown, ", "), shown.size() < shape.size() ? ", ..." : "");
}

}  // namespace megatrain::io
