#include "io/checkpoint/block_packing.h"

#include <gtest/gtest.h>

#include <random>

#include "io/direct_file.h"

namespace megatrain::io {
namespace {

TEST(BlockPacking, EveryPieceHasPagesOfItsOwn) {
  std::mt19937_64 random(1);
  std::vector<BlockPiece> pieces;
  for (std::size_t i = 0; i < 500; ++i)
    pieces.push_back({.dataset = i,
                      .bytes = i % 3 == 0   ? kBlockBytes
                               : i % 3 == 1 ? 1 + static_cast<Index>(random() % 5000)
                                            : 1 + static_cast<Index>(random() % kBlockBytes)});
  std::vector<int> seen(pieces.size());
  for (const PackedBlock& block : pack_blocks(pieces)) {
    ASSERT_EQ(block.pieces.size(), block.offsets.size());
    Index end = 0;
    for (std::size_t i = 0; i < block.pieces.size(); ++i) {
      const BlockPiece& piece = block.pieces[i];
      EXPECT_EQ(piece.bytes, pieces[piece.dataset].bytes);
      EXPECT_EQ(block.offsets[i] % kDirectAlignment, 0);
      EXPECT_GE(block.offsets[i], end);
      end = block.offsets[i] + piece.bytes;
      ++seen[piece.dataset];
    }
    EXPECT_LE(end, block.filled);
    EXPECT_LE(block.filled, kBlockBytes);
  }
  EXPECT_EQ(seen, std::vector<int>(pieces.size(), 1));
}

TEST(BlockPacking, NothingTakesNothing) { EXPECT_TRUE(pack_blocks({}).empty()); }

TEST(BlockPacking, ABufferOfTheStatesSizeHoldsTheState) {
  for (const char* name : {"qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "qwen2.5-32b"}) {
    const Model model(preset(name));
    for (const DType moments : {DType::f32, DType::bf16}) {
      const Index blocks = blocks_of_state(model, moments);
      EXPECT_GE(blocks * kBlockBytes, state_bytes(model, moments)) << name;
      // The smallest one's matrices take a bit more than half a block in bf16: two share none.
      const Index percent = moments == DType::f32 ? 108 : 120;
      EXPECT_LE(blocks * kBlockBytes, state_bytes(model, moments) / 100 * percent) << name;
    }
  }
}

}  // namespace
}  // namespace megatrain::io
