#pragma once
/// @file
/// Which pieces of a state share a block of memory on their way to the disk. Models have many
/// tensors that fill a small part of one, or a bit more than one: with a block for each piece, half
/// of a buffer would hold nothing.

#include <span>
#include <vector>

#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_layout.h"

namespace megatrain::io {

/// What one block holds: pieces from `offsets` on, which are whole pages of direct I/O apart.
struct PackedBlock {
  std::vector<BlockPiece> pieces;
  std::vector<Index> offsets;  ///< of each piece in the block
  Index filled = 0;            ///< bytes from the block's begin, a whole number of pages
};

/// Packs pieces into few blocks (first fit, the largest first).
std::vector<PackedBlock> pack_blocks(std::vector<BlockPiece> pieces);

/// Blocks that hold the whole training state of `model`, packed unit by unit.
Index blocks_of_state(const Model& model, DType moments);

}  // namespace megatrain::io
