#include "io/checkpoint/state_load.h"

#include <algorithm>
#include <vector>

#include "io/checkpoint/read_blocks.h"

namespace megatrain::io {

namespace {

/// The blocks of a tensor that hold elements of a range.
BlockRange blocks_of(const Checkpoint& checkpoint, const StateSource& source,
                     const ElementRange& elements) {
  const Checkpoint::Tensor* tensor = checkpoint.find(source.entry->path);
  if (elements.empty()) return {tensor, 0, 0};
  const Index width = bits_of(source.entry->type) / 8;
  const Index block = checkpoint.manifest().block_bytes;
  return {tensor, elements.first * width / block, ceil_div(elements.last * width, block)};
}

/// Writes what the store holds of elements from `first` on.
void write_held(HostStore& store, const StateSource& source, Index first,
                std::span<const std::byte> bytes) {
  const FileType type = source.entry->type;
  const Index width = bits_of(type) / 8;
  const ElementRange held = store.held(source.tensor.unit, *source.tensor.param);
  const Index begin = std::max(first, held.first);
  const Index end = std::min(first + std::ssize(bytes) / width, held.last);
  const auto count = static_cast<std::size_t>(end - begin);
  bytes = bytes.subspan(static_cast<std::size_t>((begin - first) * width),
                        count * static_cast<std::size_t>(width));
  if (type == FileType::f32)
    return write_state(store, source.tensor, begin,
                       {reinterpret_cast<const float*>(bytes.data()), count});
  std::vector<float> values(count);
  to_floats(type, bytes, values);
  write_state(store, source.tensor, begin, values);
}

void load_held(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
               const Progress& progress) {
  const std::vector<StateSource> sources =
      match_state(checkpoint.manifest(), checkpoint.folder(), store.model(), parts);
  std::vector<BlockRange> ranges;
  for (const StateSource& source : sources)
    ranges.push_back(
        blocks_of(checkpoint, source, store.held(source.tensor.unit, *source.tensor.param)));
  constexpr Index kMostBlocks = 16;  // 256 MiB
  BlockPool blocks(std::min<Index>(pool.threads(), kMostBlocks));
  read_blocks(
      checkpoint, ranges, blocks, pool, progress,
      [&](std::size_t range, Index number, std::span<const std::byte> bytes) {
        const StateSource& source = sources[range];
        const Index width = bits_of(source.entry->type) / 8;
        try {
          write_held(store, source, number * checkpoint.manifest().block_bytes / width, bytes);
        } catch (const UserError& error) {
          throw UserError(
              Error::with_context(ranges[range].tensor->file->path().string(), error.what()));
        }
      });
}

}  // namespace

void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress, Peers& peers) {
  agree(peers, "loaded", [&]() -> std::string {
    load_held(checkpoint, store, parts, pool, progress);
    return {};
  });
}

}  // namespace megatrain::io
