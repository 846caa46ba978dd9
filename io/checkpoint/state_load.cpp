#include "io/checkpoint/state_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/checkpoint/read_blocks.h"
#include "io/held_pieces.h"

namespace megatrain::io {

namespace {

/// What the store holds of one block of a tensor.
struct Wanted {
  const StateSource* source = nullptr;
  HeldPiece piece;
};

/// Writes what the store holds of a block's bytes.
void write_held(HostStore& store, const Wanted& wanted, Index block_bytes,
                std::span<const std::byte> bytes) {
  const auto& [source, piece] = wanted;
  const FileType type = source->entry->type;
  const Index width = bits_of(type) / 8;
  std::vector<float> values;
  source->tensor.param->for_each_run(piece.first, piece.count, [&](const PartRun& run) {
    const auto begin = static_cast<std::size_t>(run.whole * width - piece.block * block_bytes);
    const auto count = static_cast<std::size_t>(run.count);
    const auto found = bytes.subspan(begin, count * static_cast<std::size_t>(width));
    if (type == FileType::f32)
      return write_state(store, source->tensor, run.part,
                         {reinterpret_cast<const float*>(found.data()), count});
    values.resize(count);
    to_floats(type, found, values);
    write_state(store, source->tensor, run.part, values);
  });
}

/// Before anything is read: neither type is to be had from the other unasked.
void require_same_moments(const Checkpoint& checkpoint, const HostStore& store) {
  const std::optional<DType> moments = moments_in(checkpoint.manifest());
  if (moments && *moments != store.moment_type())
    throw UserError(fmt::format(
        "{}: its moments are {}, but this run keeps them in {}. Go on with --moments {}, or have "
        "them converted by --accept-change moments",
        checkpoint.folder().string(), name(*moments), name(store.moment_type()), name(*moments)));
}

void load_held(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
               const Progress& progress) {
  const std::vector<StateSource> sources =
      match_state(checkpoint.manifest(), checkpoint.folder(), store.model(), parts);
  const Index block_bytes = checkpoint.manifest().block_bytes;
  std::vector<Wanted> wanted;
  std::vector<BlockRange> ranges;  // a block for each
  for (const StateSource& source : sources) {
    const StateTensor& tensor = source.tensor;
    for (const HeldPiece& piece : held_pieces(*tensor.param, store.held(tensor.unit, *tensor.param),
                                              block_bytes * 8 / bits_of(source.entry->type))) {
      wanted.push_back({&source, piece});
      ranges.push_back({checkpoint.find(source.entry->path), piece.block, piece.block + 1});
    }
  }
  constexpr Index kMostBlocks = 16;  // 256 MiB
  BlockPool blocks(std::min<Index>(pool.threads(), kMostBlocks));
  read_blocks(checkpoint, ranges, blocks, pool, progress,
              [&](std::size_t range, Index, std::span<const std::byte> bytes) {
                try {
                  write_held(store, wanted[range], block_bytes, bytes);
                } catch (const UserError& error) {
                  throw UserError(Error::with_context(ranges[range].tensor->file->path().string(),
                                                      error.what()));
                }
              });
}

}  // namespace

void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress, Peers& peers, OtherMoments other_moments) {
  agree(peers, "loaded", [&]() -> std::string {
    if (parts == LoadParts::all && other_moments == OtherMoments::refused)
      require_same_moments(checkpoint, store);
    load_held(checkpoint, store, parts, pool, progress);
    return {};
  });
}

}  // namespace megatrain::io
