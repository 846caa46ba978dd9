#include "io/checkpoint/state_load.h"

#include <algorithm>
#include <vector>

#include "io/checkpoint/read_blocks.h"

namespace megatrain::io {

void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress) {
  const std::vector<StateSource> sources =
      match_state(checkpoint.manifest(), checkpoint.folder(), store.model(), parts);
  std::vector<const Checkpoint::Tensor*> tensors;
  for (const StateSource& source : sources) tensors.push_back(checkpoint.find(source.entry->path));
  constexpr Index kMostBlocks = 16;  // 256 MiB
  BlockPool blocks(std::min<Index>(pool.threads(), kMostBlocks));
  read_blocks(checkpoint, tensors, blocks, pool, progress,
              [&](std::size_t tensor, Index number, std::span<const std::byte> bytes) {
                const StateSource& source = sources[tensor];
                const FileType type = source.entry->type;
                const Index width = bits_of(type) / 8;
                const Index first = number * checkpoint.manifest().block_bytes / width;
                const auto count = bytes.size() / static_cast<std::size_t>(width);
                try {
                  if (type == FileType::f32) {
                    write_state(store, source.tensor, first,
                                {reinterpret_cast<const float*>(bytes.data()), count});
                  } else {
                    std::vector<float> values(count);
                    to_floats(type, bytes, values);
                    write_state(store, source.tensor, first, values);
                  }
                } catch (const UserError& error) {
                  throw UserError(
                      Error::with_context(tensors[tensor]->file->path().string(), error.what()));
                }
              });
}

}  // namespace megatrain::io
