#include "io/checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "io/atomic_file.h"
#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/shard_writer.h"
#include "io/checkpoint/state_match.h"
#include "io/folder.h"
#include "io/hf_export.h"
#include "io/text.h"
#include "io/weight_files.h"

namespace megatrain::io {

namespace {

/// Each takes a block of kBlockBytes and as much again for its conversion.
constexpr int kMostThreads = 4;

/// Fills `out` with elements of a weight from `first` on, as `type`.
void read_weight(const WeightSource& source, Index first, DType type, std::span<std::byte> out) {
  const TensorInfo& tensor = *source.from.tensor;
  const Index width = bits_of(tensor.type) / 8;
  const Index elements = std::ssize(out) / size_of(type);
  for (Index at = 0; at < elements; at += kPieceElements) {
    const Index count = std::min(kPieceElements, elements - at);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * width));
    source.from.file->read(tensor, (first + at) * width, bytes);
    if (!source.copies.empty()) {
      std::vector<float> values(static_cast<std::size_t>(count));
      to_floats(tensor.type, bytes, values);
      check_copies(source, first + at, values);
    }
    convert_weights(tensor.type, bytes, type,
                    out.subspan(static_cast<std::size_t>(at * size_of(type)),
                                static_cast<std::size_t>(count * size_of(type))),
                    tensor.name);
  }
}

/// The small files of a folder whose weights are written anew as `type`.
std::vector<SideFile> retyped(std::vector<SideFile> files, DType type) {
  for (SideFile& file : files)
    if (file.name == kConfigName) file.content = rewrite_hf_config(file.content, file.name, type);
  return files;
}

/// Refuses a TO that would take FROM with it, or that holds something else than models: only what
/// these commands write gives way.
void check_target(const ConvertOptions& options) {
  const std::string to = options.to.string();
  if (lies_in(options.from, options.to) || lies_in(options.to, options.from))
    throw UserError(fmt::format("{} is, holds or lies in what is converted, {}", quote(to),
                                quote(options.from.string())));
  std::error_code error;
  if (!options.replace || !std::filesystem::is_directory(options.to, error) ||
      std::filesystem::is_empty(options.to, error))
    return;
  if (!file_exists(options.to / kConfigName))
    throw UserError(fmt::format(
        "{} is neither a checkpoint nor a model folder, and is not replaced", quote(to)));
  for (const std::string& name : names_in(options.to))
    if (std::filesystem::is_directory(options.to / name, error))
      throw UserError(
          fmt::format("{} holds folders, which no model does, and is not replaced", quote(to)));
}

}  // namespace

void folder_to_checkpoint(const ConvertOptions& options, Hdf5Bf16 bf16, const Progress& progress) {
  check_target(options);
  const HfFolder from(options.from);
  const Model model(from.config().model);
  const WeightFiles files(options.from);
  std::map<const ParamDesc*, WeightSource> sources;
  for (const WeightSource& source : match_weights(files, model)) sources[source.param] = source;

  std::vector<ShardSpec> specs;
  std::vector<std::vector<const WeightSource*>> sources_of_shard;
  Index total = 0;
  StateForm form = kWeightsAlone;
  form.masters = options.type;
  for (const StateShard& shard : state_shards(model, options.shard_bytes, form)) {
    specs.push_back({shard.name, {}});
    sources_of_shard.emplace_back();
    for (const StateTensor& tensor : shard.tensors) {
      specs.back().datasets.push_back(dataset_spec(tensor));
      sources_of_shard.back().push_back(&sources.at(tensor.param));
      total += tensor.bytes();
    }
  }

  AtomicFolder folder(options.to, options.replace);
  ShardWriter writer(folder.path(), std::move(specs), root_attributes(0), bf16);
  ThreadPool pool(std::min(options.threads, kMostThreads));
  BlockPool blocks(pool.threads());
  const std::vector<BlockPiece> pieces = writer.blocks();
  run_pieces(pool, std::ssize(pieces), total, progress, [&](Index i) {
    const BlockPiece& piece = pieces[static_cast<std::size_t>(i)];
    const BlockPool::Block block = blocks.acquire();
    const auto data = block.bytes().first(static_cast<std::size_t>(piece.bytes));
    read_weight(*sources_of_shard[piece.shard][piece.dataset], piece.first / size_of(options.type),
                options.type, data);
    writer.write(piece, data);
    return std::ssize(data);
  });

  Manifest manifest;
  manifest.block_bytes = kBlockBytes;
  manifest.shards = writer.finish(pool, blocks);
  manifest.aliases = tied_names(model);
  write_checkpoint_files(folder.path(), retyped(from.side_files(), options.type), manifest);
  folder.commit();
}

void checkpoint_to_folder(const ConvertOptions& options, const Progress& progress) {
  check_target(options);
  const Checkpoint from(options.from);
  const Model model(check_contents(from).config);
  std::map<const ParamDesc*, const Checkpoint::Tensor*> tensors;
  for (const StateSource& source :
       match_state(from.manifest(), from.folder(), model, LoadParts::weights))
    tensors[source.tensor.param] = from.find(source.entry->path);
  std::vector<SideFile> side_files;
  for (const ManifestFile& file : from.manifest().files)
    if (is_side_file(file.name)) side_files.push_back({file.name, from.read_file(file.name)});

  ThreadPool pool(std::min(options.threads, kMostThreads));
  BlockPool blocks(pool.threads());
  const auto width = [](const Checkpoint::Tensor& tensor) {
    return bits_of(tensor.entry->type) / 8;
  };
  // A piece is a block: that is what has a checksum.
  const auto piece = [&](const ParamDesc& param) {
    return from.manifest().block_bytes / width(*tensors.at(&param));
  };
  const auto read = [&](Index, const ParamDesc& param, Index first, std::span<std::byte> out) {
    const Checkpoint::Tensor& tensor = *tensors.at(&param);
    BlockPool::Block block = blocks.acquire();
    const std::span<const std::byte> bytes =
        from.read_block(tensor, first * width(tensor) / from.manifest().block_bytes, block);
    convert_weights(tensor.entry->type, bytes, options.type, out, param.name);
  };
  const auto whole = [](Index, const ParamDesc& param) {
    return ElementRange{0, param.elements()};
  };
  export_weights(model, {.held = whole, .piece = piece, .read = read}, side_files,
                 {.folder = options.to,
                  .type = options.type,
                  .shard_bytes = options.shard_bytes,
                  .replace = options.replace},
                 pool, progress);
}

}  // namespace megatrain::io
