#pragma once
/// @file
/// Writes a safetensors file tensor by tensor, in any order and in pieces.

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/file_type.h"

namespace megatrain::io {

struct TensorSpec {
  std::string name;
  FileType type = FileType::f32;
  std::vector<Index> shape;
};

/// Data begins at a multiple of this many bytes: fit for direct I/O (legal: trailing spaces).
inline constexpr Index kSafetensorsAlignment = 4096;

/// The file appears at its path by finish(), whole; the header carries format=pt, which
/// transformers asks for. Tensors lie in the reference's order: widest type first, then by name.
/// Where the bytes belong follows from the tensors alone, so that several processes can write them:
/// one makes the file, and finishes it when those that joined are through.
class SafetensorsWriter {
 public:
  /// The maker claims the disk space. @throws UserError for equal names, or when the disk is full
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    AtomicFile::Role role = AtomicFile::Role::maker);

  /// Bytes [first, first + data.size()) of tensor `index` of the constructor's list. Threads may
  /// write different ranges at the same time; every byte must be written exactly once.
  void write(std::size_t index, Index first, std::span<const std::byte> data);
  /// Bytes of tensors that were written here.
  [[nodiscard]] Index written() const { return written_; }
  /// Syncs; the maker then publishes. @param by_others  bytes that joiners wrote
  /// @throws LogicError when the maker finds that bytes are missing
  void finish(Index by_others = 0);

 private:
  AtomicFile file_;
  AtomicFile::Role role_;
  std::vector<Index> begins_, ends_;  ///< in the file, by the constructor's order
  Index data_bytes_ = 0;
  std::atomic<Index> written_ = 0;
};

}  // namespace megatrain::io
