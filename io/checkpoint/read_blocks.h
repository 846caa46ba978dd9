#pragma once
/// @file
/// The values of a checkpoint's tensors, block by block.

#include <functional>
#include <span>

#include "io/checkpoint/checkpoint.h"
#include "io/pieces.h"

namespace megatrain::io {

/// Blocks [first, last) of a tensor.
struct BlockRange {
  const Checkpoint::Tensor* tensor = nullptr;
  Index first = 0, last = 0;
};
/// All of them.
BlockRange all_blocks(const Checkpoint::Tensor& tensor);

/// Takes block `block` of the tensor of range `range` of the list.
using BlockBody =
    std::function<void(std::size_t range, Index block, std::span<const std::byte> bytes)>;

/// Reads every block of `ranges`, each compared with its checksum, and hands it to `body`, by all
/// threads of the pool. Stops at the first failure. @throws DamagedCheckpoint naming file, tensor
/// and place, and what `body` throws
void read_blocks(const Checkpoint& checkpoint, std::span<const BlockRange> ranges,
                 BlockPool& blocks, ThreadPool& pool, const Progress& progress,
                 const BlockBody& body);

}  // namespace megatrain::io
