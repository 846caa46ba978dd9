#include "io/checkpoint/read_blocks.h"

#include <vector>

namespace megatrain::io {

void read_blocks(const Checkpoint& checkpoint, std::span<const Checkpoint::Tensor* const> tensors,
                 BlockPool& blocks, ThreadPool& pool, const Progress& progress,
                 const BlockBody& body) {
  struct Piece {
    std::size_t tensor;
    Index block;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    total += tensors[t]->entry->bytes();
    for (Index b = 0; b < std::ssize(tensors[t]->entry->blocks); ++b) pieces.push_back({t, b});
  }
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [tensor, number] = pieces[static_cast<std::size_t>(i)];
    BlockPool::Block block = blocks.acquire();
    const std::span<const std::byte> bytes = checkpoint.read_block(*tensors[tensor], number, block);
    body(tensor, number, bytes);
    return std::ssize(bytes);
  });
}

}  // namespace megatrain::io
