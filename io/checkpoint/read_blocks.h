#pragma once
/// @file
/// The values of a checkpoint's tensors, block by block.

#include <functional>
#include <span>

#include "io/checkpoint/checkpoint.h"
#include "io/pieces.h"

namespace megatrain::io {

/// Takes block `block` of tensor `tensor` of the list.
using BlockBody =
    std::function<void(std::size_t tensor, Index block, std::span<const std::byte> bytes)>;

/// Reads every block of `tensors`, each compared with its checksum, and hands it to `body`, by all
/// threads of the pool. Stops at the first failure. @throws DamagedCheckpoint naming file, tensor
/// and place, and what `body` throws
void read_blocks(const Checkpoint& checkpoint, std::span<const Checkpoint::Tensor* const> tensors,
                 BlockPool& blocks, ThreadPool& pool, const Progress& progress,
                 const BlockBody& body);

}  // namespace megatrain::io
