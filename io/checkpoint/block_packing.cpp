#include "io/checkpoint/block_packing.h"

#include <algorithm>

#include "io/direct_file.h"

namespace megatrain::io {

std::vector<PackedBlock> pack_blocks(std::vector<BlockPiece> pieces) {
  std::ranges::stable_sort(pieces, std::greater(), &BlockPiece::bytes);
  std::vector<PackedBlock> blocks;
  for (const BlockPiece& piece : pieces) {
    require(piece.bytes <= kBlockBytes, "a piece is no longer than a block");
    auto block = std::ranges::find_if(blocks, [&](const PackedBlock& candidate) {
      return piece.bytes <= kBlockBytes - candidate.filled;
    });
    if (block == blocks.end()) block = blocks.emplace(block);
    block->pieces.push_back(piece);
    block->offsets.push_back(block->filled);
    block->filled = round_up(block->filled + piece.bytes, kDirectAlignment);
  }
  return blocks;
}

Index blocks_of_state(const Model& model, DType moments) {
  const StateForm form{.moments = moments};
  Index blocks = 0;
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    std::vector<BlockPiece> pieces;
    for (const ParamDesc& param : model.unit(unit).params)
      for (const StatePart part : form.parts) {
        const Index bytes = checked_mul(param.whole_elements(), size_of(form.type(part)));
        for (Index first = 0; first < bytes; first += kBlockBytes)
          pieces.push_back({.bytes = std::min(kBlockBytes, bytes - first)});
      }
    blocks += std::ssize(pack_blocks(std::move(pieces)));
  }
  return blocks;
}

}  // namespace megatrain::io
