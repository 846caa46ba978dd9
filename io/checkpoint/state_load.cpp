#include "io/checkpoint/state_load.h"

#include <algorithm>

namespace megatrain::io {

void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress) {
  const std::vector<StateSource> sources =
      match_state(checkpoint.manifest(), checkpoint.folder(), store.model(), parts);
  struct Piece {
    const StateSource* source;
    const Checkpoint::Tensor* from;
    Index block;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (const StateSource& source : sources) {
    total += source.entry->bytes();
    const Checkpoint::Tensor* from = checkpoint.find(source.entry->path);
    for (Index b = 0; b < std::ssize(source.entry->blocks); ++b)
      pieces.push_back({&source, from, b});
  }
  constexpr Index kMostBlocks = 16;  // 256 MiB
  BlockPool blocks(std::min<Index>(pool.threads(), kMostBlocks));
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [source, from, number] = pieces[static_cast<std::size_t>(i)];
    BlockPool::Block block = blocks.acquire();
    const std::span<const std::byte> bytes = checkpoint.read_block(*from, number, block);
    const FileType type = source->entry->type;
    const Index width = bits_of(type) / 8;
    const Index first = number * checkpoint.manifest().block_bytes / width;
    const auto count = bytes.size() / static_cast<std::size_t>(width);
    try {
      if (type == FileType::f32) {
        write_state(store, source->tensor, first,
                    {reinterpret_cast<const float*>(bytes.data()), count});
      } else {
        std::vector<float> values(count);
        to_floats(type, bytes, values);
        write_state(store, source->tensor, first, values);
      }
    } catch (const UserError& error) {
      throw UserError(Error::with_context(from->file->path().string(), error.what()));
    }
    return std::ssize(bytes);
  });
}

}  // namespace megatrain::io
