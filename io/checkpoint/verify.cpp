#include "io/checkpoint/verify.h"

namespace megatrain::io {

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress) {
  struct Piece {
    const Checkpoint::Tensor* tensor;
    Index block;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (const auto& [path, tensor] : checkpoint.tensors()) {
    total += tensor.entry->bytes();
    for (Index b = 0; b < std::ssize(tensor.entry->blocks); ++b) pieces.push_back({&tensor, b});
  }
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [tensor, number] = pieces[static_cast<std::size_t>(i)];
    BlockPool::Block block = blocks.acquire();
    return std::ssize(checkpoint.read_block(*tensor, number, block));
  });
}

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks) {
  ThreadPool alone(1);
  verify_values(checkpoint, blocks, alone);
}

}  // namespace megatrain::io
