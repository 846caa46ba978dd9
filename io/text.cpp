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

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto between = [&](std::size_t i, unsigned low, unsigned high) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return between(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;  // no surrogates
    return between(1, low, high) && between(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;  // up to U+10FFFF
    return between(1, low, high) && between(2, 0x80, 0xbf) && between(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace megatrain::io
