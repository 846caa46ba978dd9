#pragma once
/// @file
/// Checksums of checkpoint files: XXH3, 64 bits, seed 0.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace megatrain::io {

using Checksum = std::uint64_t;

Checksum checksum(std::span<const std::byte> data);
inline Checksum checksum(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

/// 16 hexadecimal digits, as xxhsum -H3 prints them.
std::string to_text(Checksum value);
/// nullopt for anything but 16 lower-case hexadecimal digits.
std::optional<Checksum> parse_checksum(std::string_view text);

/// The checksum of data that come in pieces.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  void add(std::span<const std::byte> data);
  [[nodiscard]] Checksum value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain::io
