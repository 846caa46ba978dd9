#include "io/hdf5/superblock.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/text.h"

namespace megatrain::io::hdf5 {

namespace {

constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
constexpr std::uint64_t kUndefined = ~std::uint64_t{0};

/// Where the fields of a superblock lie.
struct Fields {
  std::size_t offset_size, length_size, base, end;
  std::size_t driver = 0;  ///< address of the driver information; 0: it is elsewhere
};

constexpr Fields kVersion0 = {
    .offset_size = 13, .length_size = 14, .base = 24, .end = 40, .driver = 48};
constexpr Fields kVersion1 = {
    .offset_size = 13, .length_size = 14, .base = 28, .end = 44, .driver = 52};
constexpr Fields kVersion2 = {.offset_size = 9, .length_size = 10, .base = 12, .end = 28};
constexpr std::size_t kLongest = 60;   ///< of what is read here
constexpr std::size_t kShortest = 48;  ///< superblock of versions 2 and 3, with its checksum

}  // namespace

Index check_superblock(const InputFile& file) {
  std::array<std::byte, kLongest> head{};
  const auto present = static_cast<std::size_t>(std::min<Index>(file.bytes(), kLongest));
  file.read(0, std::span(head).first(present));
  const auto refuse = [&](std::string_view what) {
    throw UserError(fmt::format("{} {}", quote(file.path().string()), what));
  };
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(head[at]); };
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, head.data() + at, sizeof(value));
    return value;
  };

  if (std::memcmp(head.data(), kSignature.data(), kSignature.size()) != 0)
    refuse("is not an HDF5 file (one does not begin at its first byte)");
  const unsigned version = byte(kSignature.size());
  if (version > 3)
    refuse(fmt::format("has an HDF5 superblock of version {}; 0 to 3 are known", version));
  const Fields& fields = version == 0 ? kVersion0 : version == 1 ? kVersion1 : kVersion2;
  if (present < (version < 2 ? kLongest : kShortest))
    refuse(fmt::format("is truncated: {} bytes are too few for an HDF5 file", file.bytes()));
  if (byte(fields.offset_size) != 8 || byte(fields.length_size) != 8)
    refuse("does not count in 64 bits; files of this kind are not read");
  if (word(fields.base) != 0)
    refuse("begins with something else than HDF5; such files are not read");
  if (fields.driver != 0 && word(fields.driver) != kUndefined)
    refuse("is part of an HDF5 file in several files; such files are not read");
  const std::uint64_t end = word(fields.end);
  if (end > static_cast<std::uint64_t>(file.bytes()))
    refuse(fmt::format("is truncated: it has {} bytes and says {}", file.bytes(), end));
  return static_cast<Index>(end);
}

}  // namespace megatrain::io::hdf5
