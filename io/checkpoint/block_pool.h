#pragma once
/// @file
/// Buffers for blocks on their way between host store and disk: as many as the memory given allows,
/// so that whoever is ahead waits.

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace megatrain::io {

/// Bytes that are checksummed and transferred as one: a whole number of pages for direct I/O, large
/// enough that a disk is busy with few of them. Written into every manifest.
inline constexpr Index kBlockBytes = Index{16} << 20;

/// One mapping cut into blocks of kBlockBytes. Memory is taken when a block is first used, and
/// kept.
class BlockPool {
 public:
  /// @param blocks  at least 1. @throws UserError when the address range cannot be had
  explicit BlockPool(Index blocks);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A block that goes back to its pool at the end of its life. The pool must outlive it.
  class Block {
   public:
    Block() = default;
    Block(BlockPool& pool, std::byte* data) : pool_(&pool), data_(data) {}
    ~Block() { give_back(); }
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;
    /// kBlockBytes, page-aligned.
    [[nodiscard]] std::span<std::byte> bytes() const {
      return {data_, static_cast<std::size_t>(kBlockBytes)};
    }

   private:
    void give_back();
    BlockPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
  };

  /// Waits until a block is free.
  Block acquire();
  [[nodiscard]] Index blocks() const { return blocks_; }

 private:
  Index blocks_;
  std::byte* memory_ = nullptr;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::byte*> free_;
};

}  // namespace megatrain::io
