#pragma once
/// @file
/// Where the format keeps what is of no fixed size: fractal heaps (many links, many or large
/// attributes), local heaps (names in old groups), global heaps (variable-length strings).

#include <string>
#include <unordered_map>

#include "io/hdf5/source.h"

namespace megatrain::io::hdf5 {

class FractalHeap {
 public:
  FractalHeap(Source& source, std::uint64_t address);
  /// The object with an identifier of this heap.
  Bytes object(std::span<const std::byte> id);

 private:
  struct Place {
    std::uint64_t address, bytes, begin;  ///< of a direct block; begin: in the heap
  };
  Bytes managed(Cursor& id);
  Bytes huge(Cursor& id);
  [[nodiscard]] Place find_block(std::uint64_t offset);
  [[nodiscard]] std::uint64_t row_bytes(unsigned row) const;
  const Bytes& block(const Place& place);
  const Bytes& indirect_block(std::uint64_t address, unsigned rows);

  Source& source_;
  std::uint64_t id_bytes_ = 0, max_managed_ = 0;
  bool checked_blocks_ = false;
  std::uint64_t huge_tree_ = 0;
  unsigned width_ = 0, max_bits_ = 0;
  std::uint64_t first_block_ = 0, max_direct_ = 0;
  std::uint64_t root_ = 0;
  unsigned root_rows_ = 0;
  std::unordered_map<std::uint64_t, Bytes> blocks_;  ///< read already, by address
};

/// The names of an old group.
class LocalHeap {
 public:
  LocalHeap(Source& source, std::uint64_t address);
  [[nodiscard]] std::string text(std::uint64_t offset) const;

 private:
  Source& source_;
  Bytes data_;
};

/// An object of a global heap.
Bytes global_heap_object(Source& source, std::uint64_t address, std::uint64_t index);

}  // namespace megatrain::io::hdf5
