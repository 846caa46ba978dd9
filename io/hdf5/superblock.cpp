#include "io/hdf5/superblock.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain::io::hdf5 {

namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr std::uint64_t kShortest = 48;  ///< versions 2 and 3, with their checksum
constexpr std::uint64_t kLongest = 100;  ///< version 1

struct Fields {
  std::uint64_t base, end, driver, root;
};

/// Versions 0 and 1: addresses, then the root group as an entry of a symbol table.
Fields read_old(const Source& source, Cursor& cursor, unsigned version) {
  cursor.skip(4);  // versions of parts that have only one
  if (cursor.byte() != 8 || cursor.byte() != 8) source.refuse("does not count in 64 bits");
  cursor.skip(1 + 4 + 4 + (version == 1 ? 4 : 0));
  Fields fields{};
  fields.base = cursor.number(8);
  cursor.skip(8);  // free space
  fields.end = cursor.number(8);
  fields.driver = cursor.number(8);
  cursor.skip(8);  // name of the root group
  fields.root = cursor.number(8);
  return fields;
}

Fields read_new(const Source& source, Cursor& cursor) {
  if (cursor.byte() != 8 || cursor.byte() != 8) source.refuse("does not count in 64 bits");
  cursor.skip(1);  // flags
  Fields fields{};
  fields.base = cursor.number(8);
  cursor.skip(8);  // extension: nothing that reading needs
  fields.end = cursor.number(8);
  fields.driver = kUndefined;
  fields.root = cursor.number(8);
  return fields;
}

}  // namespace

Superblock read_superblock(Source& source) {
  const auto bytes = static_cast<std::uint64_t>(source.file_bytes());
  const Bytes head = source.fetch(0, std::min(bytes, kLongest));
  if (!has_signature(head, kSignature))
    source.refuse("is not an HDF5 file (none begins at its first byte)");
  Cursor cursor(source, head);
  cursor.skip(kSignature.size());
  if (head.size() <= kSignature.size())
    source.refuse(fmt::format("is truncated: it has {} bytes", bytes));
  const unsigned version = cursor.byte();
  if (version > 3)
    source.refuse(fmt::format("has an HDF5 superblock of version {}; 0 to 3 are known", version));
  if (head.size() < (version < 2 ? kLongest - (version == 0 ? 4 : 0) : kShortest))
    source.refuse(fmt::format("is truncated: it has {} bytes", bytes));
  const Fields fields = version < 2 ? read_old(source, cursor, version) : read_new(source, cursor);
  if (version >= 2)
    require_checksum(source, std::span(head).first(kShortest - 4), cursor.number(4));
  if (fields.base != 0) source.refuse("begins with something else than HDF5");
  if (fields.driver != kUndefined) source.refuse("is part of an HDF5 file in several files");
  if (fields.end > bytes)
    source.refuse(fmt::format("is truncated: it has {} bytes and says {}", bytes, fields.end));
  return {.end = fields.end, .root = fields.root};
}

}  // namespace megatrain::io::hdf5
