#include "io/checkpoint/verify.h"

#include <vector>

#include "io/checkpoint/read_blocks.h"

namespace megatrain::io {

void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress) {
  std::vector<BlockRange> ranges;
  for (const auto& [path, tensor] : checkpoint.tensors()) ranges.push_back(all_blocks(tensor));
  read_blocks(checkpoint, ranges, blocks, pool, progress,
              [](std::size_t, Index, std::span<const std::byte>) {});
}

}  // namespace megatrain::io
