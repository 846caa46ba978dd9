#include "io/checkpoint/read_blocks.h"

#include <algorithm>
#include <vector>

namespace megatrain::io {

BlockRange all_blocks(const Checkpoint::Tensor& tensor) {
  return {&tensor, 0, std::ssize(tensor.entry->blocks)};
}

void read_blocks(const Checkpoint& checkpoint, std::span<const BlockRange> ranges,
                 BlockPool& blocks, ThreadPool& pool, const Progress& progress,
                 const BlockBody& body) {
  struct Piece {
    std::size_t range;
    Index block;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  const Index block_bytes = checkpoint.manifest().block_bytes;
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const auto& [tensor, first, last] = ranges[r];
    if (first < last)
      total += std::min(last * block_bytes, tensor->entry->bytes()) - first * block_bytes;
    for (Index b = first; b < last; ++b) pieces.push_back({r, b});
  }
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [range, number] = pieces[static_cast<std::size_t>(i)];
    BlockPool::Block block = blocks.acquire();
    const std::span<const std::byte> bytes =
        checkpoint.read_block(*ranges[range].tensor, number, block);
    body(range, number, bytes);
    return std::ssize(bytes);
  });
}

}  // namespace megatrain::io
