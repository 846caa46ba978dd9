#include "io/hdf5/heap.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "io/hdf5/tree.h"

namespace megatrain::io::hdf5 {

namespace {

unsigned log2_of(std::uint64_t value) { return static_cast<unsigned>(std::bit_width(value)) - 1; }

constexpr std::uint64_t kBlockPrefix = 4 + 1 + 8;  ///< signature, version, address of the heap

}  // namespace

FractalHeap::FractalHeap(Source& source, std::uint64_t address) : source_(source) {
  constexpr std::uint64_t kHeader = 146;
  const Bytes header = source_.fetch_checked(address, kHeader, "FRHP");
  Cursor cursor(source_, header);
  cursor.skip(4);
  if (cursor.byte() != 0) source_.refuse("a heap of an unknown version");
  id_bytes_ = cursor.number(2);
  if (cursor.number(2) != 0) source_.refuse("a filtered heap");
  checked_blocks_ = (cursor.byte() & 2) != 0;
  max_managed_ = cursor.number(4);
  cursor.skip(8);
  huge_tree_ = cursor.number(8);
  cursor.skip(std::uint64_t{10} * 8);  // statistics and free space
  width_ = static_cast<unsigned>(cursor.number(2));
  first_block_ = cursor.number(8);
  max_direct_ = cursor.number(8);
  max_bits_ = static_cast<unsigned>(cursor.number(2));
  cursor.skip(2);
  root_ = cursor.number(8);
  root_rows_ = static_cast<unsigned>(cursor.number(2));
  // Sizes whose sums and products stay inside 64 bits.
  constexpr std::uint64_t kLargestBlock = 1ULL << 26;
  if (!std::has_single_bit(width_) || !std::has_single_bit(first_block_) ||
      !std::has_single_bit(max_direct_) || first_block_ > max_direct_ ||
      max_direct_ > kLargestBlock || width_ > 1024 || max_bits_ == 0 || max_bits_ > 60 ||
      root_rows_ > max_bits_ + 1 || max_managed_ > kLargestBlock)
    source_.refuse("a heap of impossible sizes");
}

Bytes FractalHeap::object(std::span<const std::byte> id) {
  if (id.size() != id_bytes_) source_.refuse("an identifier of another heap");
  Cursor cursor(source_, id);
  switch (cursor.byte() >> 4) {  // version 0 and kind
    case 0:
      return managed(cursor);
    case 1:
      return huge(cursor);
    default:
      source_.refuse("an identifier of an unknown kind");
  }
}

Bytes FractalHeap::managed(Cursor& id) {
  const std::size_t offset_bytes = (max_bits_ + 7) / 8;
  const auto length_bytes = std::min<std::size_t>(
      (log2_of(max_direct_) + 7) / 8, max_managed_ == 0 ? 1 : log2_of(max_managed_) / 8 + 1);
  const std::uint64_t offset = id.number(offset_bytes);
  const std::uint64_t length = id.number(std::max<std::size_t>(length_bytes, 1));
  const Place place = find_block(offset);
  const Bytes& data = block(place);
  const std::uint64_t first = offset - place.begin;
  if (first > data.size() || length > data.size() - first)
    source_.refuse("an object beyond the end of its heap");
  return {data.begin() + static_cast<std::ptrdiff_t>(first),
          data.begin() + static_cast<std::ptrdiff_t>(first + length)};
}

Bytes FractalHeap::huge(Cursor& id) {
  // Place and size where an identifier is long enough for them, else a number to look up.
  if (id.left() >= 16) {
    const std::uint64_t address = id.number(8);
    return source_.fetch(address, id.number(8));
  }
  const std::uint64_t wanted = id.number(std::min<std::size_t>(id.left(), 8));
  for (const Bytes& record : tree_records(source_, huge_tree_, TreeType::huge_objects)) {
    Cursor cursor(source_, record);
    const std::uint64_t address = cursor.number(8);
    const std::uint64_t length = cursor.number(8);
    if (cursor.number(8) == wanted) return source_.fetch(address, length);
  }
  source_.refuse("an object that is not in its heap");
}

std::uint64_t FractalHeap::row_bytes(unsigned row) const {
  return first_block_ << (row == 0 ? 0 : row - 1);
}

/// The blocks of a heap, one row after another, double their size with each row but the first;
/// those larger than the largest direct block are indirect: tables of the same kind.
FractalHeap::Place FractalHeap::find_block(std::uint64_t offset) {
  if (root_rows_ == 0) {
    if (offset >= first_block_) source_.refuse("an object beyond the end of its heap");
    return {.address = root_, .bytes = first_block_, .begin = 0};
  }
  const std::uint64_t first_row = first_block_ * width_;
  const unsigned direct_rows = log2_of(max_direct_) - log2_of(first_block_) + 2;
  std::uint64_t table = root_, begin = 0;
  unsigned rows = root_rows_;
  while (true) {  // each table is smaller than the one before
    const std::uint64_t inside = offset - begin;
    const unsigned row = inside < first_row ? 0 : log2_of(inside / first_row) + 1;
    if (row >= rows) source_.refuse("an object beyond the end of its heap");
    const std::uint64_t row_begin = row == 0 ? 0 : first_row << (row - 1);
    const std::uint64_t column = (inside - row_begin) / row_bytes(row);
    const Bytes& entries = indirect_block(table, rows);
    Cursor cursor(source_, entries);
    cursor.skip(kBlockPrefix + (max_bits_ + 7) / 8 + (row * std::uint64_t{width_} + column) * 8);
    const std::uint64_t address = cursor.number(8);
    begin += row_begin + column * row_bytes(row);
    if (row < direct_rows) return {.address = address, .bytes = row_bytes(row), .begin = begin};
    table = address;
    const unsigned smaller = log2_of(row_bytes(row)) - log2_of(first_row) + 1;
    if (row_bytes(row) < first_row || smaller >= rows) source_.refuse("a heap of impossible sizes");
    rows = smaller;
  }
}

const Bytes& FractalHeap::indirect_block(std::uint64_t address, unsigned rows) {
  const auto found = blocks_.find(address);
  if (found != blocks_.end()) return found->second;
  const std::uint64_t bytes =
      kBlockPrefix + (max_bits_ + 7) / 8 + std::uint64_t{rows} * width_ * 8 + 4;
  return blocks_.emplace(address, source_.fetch_checked(address, bytes, "FHIB")).first->second;
}

const Bytes& FractalHeap::block(const Place& place) {
  const auto found = blocks_.find(place.address);
  if (found != blocks_.end()) return found->second;
  Bytes data = source_.fetch(place.address, place.bytes);
  if (!has_signature(data, "FHDB"))
    source_.refuse(fmt::format("no FHDB at byte {}", place.address));
  if (checked_blocks_) {
    // Taken over the block with zeros in its place.
    const std::uint64_t at = kBlockPrefix + (max_bits_ + 7) / 8;
    Cursor cursor(source_, data);
    cursor.skip(at);
    const std::uint64_t stored = cursor.number(4);
    Bytes zeroed = data;
    std::fill_n(zeroed.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0});
    require_checksum(source_, zeroed, stored);
  }
  return blocks_.emplace(place.address, std::move(data)).first->second;
}

LocalHeap::LocalHeap(Source& source, std::uint64_t address) : source_(source) {
  const Bytes header = source_.fetch(address, 32);
  if (!has_signature(header, "HEAP")) source_.refuse(fmt::format("no HEAP at byte {}", address));
  Cursor cursor(source_, header);
  cursor.skip(8);
  const std::uint64_t bytes = cursor.number(8);
  cursor.skip(8);
  data_ = source_.fetch(cursor.number(8), bytes);
}

std::string LocalHeap::text(std::uint64_t offset) const {
  Cursor cursor(source_, data_);
  cursor.skip(offset);
  return cursor.text(cursor.left());
}

Bytes global_heap_object(Source& source, std::uint64_t address, std::uint64_t index) {
  constexpr std::uint64_t kPrefix = 16;
  const Bytes prefix = source.fetch(address, kPrefix);
  if (!has_signature(prefix, "GCOL")) source.refuse(fmt::format("no GCOL at byte {}", address));
  Cursor head(source, prefix);
  head.skip(8);
  const std::uint64_t bytes = head.number(8);
  if (bytes < kPrefix) source.refuse("a heap of impossible sizes");
  const Bytes objects = source.fetch(address + kPrefix, bytes - kPrefix);
  Cursor cursor(source, objects);
  while (cursor.left() >= kPrefix) {
    const std::uint64_t found = cursor.number(2);
    cursor.skip(6);
    const std::uint64_t size = cursor.number(8);
    if (found == 0) break;  // what follows is free
    const auto data = cursor.take(size);
    if (found == index) return {data.begin(), data.end()};
    cursor.skip(std::min<std::uint64_t>((8 - size % 8) % 8, cursor.left()));
  }
  source.refuse("an object that is not in its heap");
}

}  // namespace megatrain::io::hdf5
