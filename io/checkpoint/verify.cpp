#include "io/checkpoint/verify.h"

#include <vector>

#include "io/checkpoint/read_blocks.h"

namespace megatrain::io {

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress) {
  std::vector<const Checkpoint::Tensor*> tensors;
  for (const auto& [path, tensor] : checkpoint.tensors()) tensors.push_back(&tensor);
  read_blocks(checkpoint, tensors, blocks, pool, progress,
              [](std::size_t, Index, std::span<const std::byte>) {});
}

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks) {
  ThreadPool alone(1);
  verify_values(checkpoint, blocks, alone);
}

}  // namespace megatrain::io
