#include "io/checkpoint/state_load.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/text.h"

namespace megatrain::io {

namespace {

struct Source {
  StateTensor tensor;
  const Checkpoint::Tensor* from = nullptr;
};

/// Finds every tensor of the model, and refuses what is left over.
std::vector<Source> match(const Checkpoint& checkpoint, const Model& model, LoadParts parts) {
  const std::string folder = checkpoint.folder().string();
  std::vector<Source> sources;
  std::size_t known = 0;
  for (const StateShard& shard : state_shards(model, std::numeric_limits<Index>::max()))
    for (const StateTensor& tensor : shard.tensors) {
      const Checkpoint::Tensor* found = checkpoint.find(tensor.path());
      const bool wanted = parts == LoadParts::all || tensor.part == StatePart::master;
      if (found == nullptr) {
        if (!wanted) continue;
        throw UserError(fmt::format("{}: {} of shape {} is missing{}", folder, quote(tensor.path()),
                                    shape_text(tensor.param->shape),
                                    tensor.part == StatePart::master
                                        ? ""
                                        : "; it holds weights without an optimizer's state, which "
                                          "--model can start from but --resume cannot"));
      }
      ++known;
      if (!wanted) continue;
      if (found->entry->shape != tensor.param->shape)
        throw UserError(fmt::format("{}: {} has shape {}, but the model asks for {}", folder,
                                    quote(tensor.path()), shape_text(found->entry->shape),
                                    shape_text(tensor.param->shape)));
      const bool weights_only = parts == LoadParts::weights;
      if (weights_only ? !converts_to_float(found->entry->type)
                       : found->entry->type != FileType::f32)
        throw UserError(fmt::format(
            "{}: {} is {}; {}", folder, quote(tensor.path()), name(found->entry->type),
            weights_only ? "weights are read from F32, BF16 or F16" : "a training state is F32"));
      sources.push_back({tensor, found});
    }
  if (known != checkpoint.tensors().size())
    for (const auto& [path, tensor] : checkpoint.tensors()) {
      const bool ours = std::ranges::any_of(
          sources, [&](const Source& source) { return source.from == &tensor; });
      const bool moment = parts == LoadParts::weights && path.starts_with("/optim/");
      if (!ours && !moment)
        throw UserError(fmt::format("{}: {} is no part of the model that its config.json describes",
                                    folder, quote(path)));
    }
  return sources;
}

}  // namespace

void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress) {
  const std::vector<Source> sources = match(checkpoint, store.model(), parts);
  struct Piece {
    const Source* source;
    Index block;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (const Source& source : sources) {
    total += source.from->entry->bytes();
    for (Index b = 0; b < std::ssize(source.from->entry->blocks); ++b)
      pieces.push_back({&source, b});
  }
  constexpr Index kMostBlocks = 16;  // 256 MiB
  BlockPool blocks(std::min<Index>(pool.threads(), kMostBlocks));
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const auto& [source, number] = pieces[static_cast<std::size_t>(i)];
    BlockPool::Block block = blocks.acquire();
    const std::span<const std::byte> bytes = checkpoint.read_block(*source->from, number, block);
    const FileType type = source->from->entry->type;
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
      throw UserError(Error::with_context(source->from->file->path().string(), error.what()));
    }
    return std::ssize(bytes);
  });
}

}  // namespace megatrain::io
