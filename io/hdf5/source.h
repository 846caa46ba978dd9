#pragma once
/// @file
/// Bounded reading of a file's metadata.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace megatrain::io::hdf5 {

/// What the format writes for "nowhere".
inline constexpr std::uint64_t kUndefined = ~std::uint64_t{0};

using Bytes = std::vector<std::byte>;

/// Hands out pieces of a file's metadata and keeps account, so that no file, whatever it claims,
/// makes the reader read or keep more than a fixed amount.
class Source {
 public:
  explicit Source(const InputFile& file) : file_(file) {}

  [[nodiscard]] Index file_bytes() const { return file_.bytes(); }
  /// Names the object in question, for messages.
  void now_at(std::string_view path) { object_ = path; }
  /// @throws UserError always: file, object, `what`
  [[noreturn]] void refuse(std::string_view what) const;

  /// `bytes` at `address`. @throws UserError when they lie outside the file
  Bytes fetch(std::uint64_t address, std::uint64_t bytes);
  /// The same, for a structure that begins with a signature and ends with a checksum.
  Bytes fetch_checked(std::uint64_t address, std::uint64_t bytes, std::string_view signature);
  /// Accounts for memory that outlives the call: names, attributes, compact values.
  void keep(std::uint64_t bytes);

 private:
  void fill_window(std::uint64_t address);

  const InputFile& file_;
  std::string object_;
  Bytes window_;
  std::uint64_t window_begin_ = 0;
  std::uint64_t fetched_ = 0, kept_ = 0;
};

/// Reads little-endian fields one after another. @throws UserError at the end of the bytes
class Cursor {
 public:
  Cursor(const Source& source, std::span<const std::byte> bytes) : source_(source), left_(bytes) {}

  [[nodiscard]] std::size_t left() const { return left_.size(); }
  std::span<const std::byte> take(std::uint64_t bytes);
  void skip(std::uint64_t bytes) { take(bytes); }
  /// Unsigned, of 1 to 8 bytes.
  std::uint64_t number(std::size_t bytes);
  unsigned byte() { return static_cast<unsigned>(number(1)); }
  /// `bytes` characters, cut at the first NUL.
  std::string text(std::uint64_t bytes);

 private:
  const Source& source_;
  std::span<const std::byte> left_;
};

/// Whether `bytes` begin with it.
bool has_signature(std::span<const std::byte> bytes, std::string_view signature);
/// The format's checksum (Bob Jenkins' lookup3, public domain).
std::uint32_t checksum(std::span<const std::byte> bytes);
/// Refuses when `bytes` do not have the checksum `stored`.
void require_checksum(const Source& source, std::span<const std::byte> bytes, std::uint64_t stored);

}  // namespace megatrain::io::hdf5
