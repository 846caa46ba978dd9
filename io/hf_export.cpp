#include "io/hf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "io/atomic_file.h"
#include "io/held_pieces.h"
#include "io/joint_folder.h"
#include "io/json_writer.h"
#include "io/safetensors_writer.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// From here on an fp32 rounds to an infinite bf16.
constexpr float kBf16Overflow = 0x1.FFp127F;

struct Tensor {
  Index unit = 0;
  const ParamDesc* param = nullptr;
  std::size_t index = 0;  ///< in its shard
};

struct Shard {
  std::vector<Tensor> tensors;
  Index bytes = 0;
  std::string name;
};

/// Fills shards in unit order; a tensor is never cut. Other names of a tensor are not written:
/// transformers ties them again.
std::vector<Shard> cut_into_shards(const Model& model, DType type, Index limit) {
  std::vector<Shard> shards(1);
  for (Index unit = 0; unit < model.unit_count(); ++unit)
    for (const ParamDesc& param : model.unit(unit).params) {
      const Index bytes = checked_mul(param.whole_elements(), size_of(type));
      if (!shards.back().tensors.empty() && shards.back().bytes + bytes > limit)
        shards.emplace_back();
      Shard& shard = shards.back();
      shard.tensors.push_back({unit, &param, shard.tensors.size()});
      shard.bytes += bytes;
    }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

std::string index_json(const std::vector<Shard>& shards) {
  std::map<std::string, std::string> files;
  Index total = 0;
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const Tensor& tensor : shard.tensors) files[tensor.param->name] = shard.name;
  }
  JsonWriter json(2);
  json.begin_object();
  json.key("metadata").begin_object().member("total_size", total).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [tensor, file] : files) json.member(tensor, file);
  json.end_object().end_object();
  return json.text() + "\n";
}

using Writers = std::vector<std::unique_ptr<SafetensorsWriter>>;

Writers open_files(const std::vector<Shard>& shards, const std::filesystem::path& folder,
                   DType type, AtomicFile::Role role) {
  Writers writers;
  for (const Shard& shard : shards) {
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : shard.tensors)
      specs.push_back({tensor.param->name, file_type(type), tensor.param->whole_shape});
    writers.push_back(
        std::make_unique<SafetensorsWriter>(folder / shard.name, std::move(specs), role));
  }
  return writers;
}

void write_weights(const ExportSource& source, const std::vector<Shard>& shards,
                   const Writers& writers, DType type, ThreadPool& pool, const Progress& progress) {
  struct Piece {
    const Tensor* tensor;
    SafetensorsWriter* writer;
    HeldPiece elements;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (const Tensor& tensor : shards[s].tensors) {
      for (const HeldPiece& elements :
           held_pieces(*tensor.param, source.held(tensor.unit, *tensor.param),
                       source.piece(*tensor.param))) {
        pieces.push_back({&tensor, writers[s].get(), elements});
        total += elements.count * size_of(type);
      }
    }
  run_pieces(pool, static_cast<Index>(pieces.size()), total, progress, [&](Index i) {
    const auto& [tensor, writer, elements] = pieces[static_cast<std::size_t>(i)];
    const auto& [block, first, count] = elements;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(type)));
    source.read(tensor->unit, *tensor->param, first, bytes);
    tensor->param->for_each_run(first, count, [&, from = first](const PartRun& run) {
      writer->write(
          tensor->index, run.whole * size_of(type),
          std::span(bytes).subspan(static_cast<std::size_t>((run.part - from) * size_of(type)),
                                   static_cast<std::size_t>(run.count * size_of(type))));
    });
    return std::ssize(bytes);
  });
}

/// Publishes the files inside their folder. @param by_others  bytes in each file, of each other
/// rank
void finish_files(const Writers& writers, const std::vector<std::string>& by_others) {
  std::vector<Index> bytes(writers.size(), 0);
  for (const std::string& rank : by_others) {
    const std::vector<Index> written = from_bytes<Index>(rank);
    for (std::size_t s = 0; s < written.size(); ++s) bytes[s] += written[s];
  }
  for (std::size_t s = 0; s < writers.size(); ++s) writers[s]->finish(bytes[s]);
}

}  // namespace

void convert_weights(FileType from, std::span<const std::byte> bytes, DType to,
                     std::span<std::byte> out, std::string_view tensor) {
  if (from == file_type(to)) {
    require(bytes.size() == out.size(), "convert_weights: sizes");
    std::ranges::copy(bytes, out.begin());
    return;
  }
  const auto width = static_cast<std::size_t>(bits_of(from) / 8);
  const auto out_width = static_cast<std::size_t>(size_of(to));
  const std::size_t elements = bytes.size() / width;
  require(elements * out_width == out.size(), "convert_weights: sizes");
  constexpr std::size_t kAtOnce = 16384;
  std::array<float, kAtOnce> buffer;
  for (std::size_t first = 0; first < elements; first += kAtOnce) {
    const std::span<float> values(buffer.data(), std::min(kAtOnce, elements - first));
    to_floats(from, bytes.subspan(first * width, values.size() * width), values);
    if (to == DType::bf16)
      for (const float value : values)
        if (std::isfinite(value) && std::abs(value) >= kBf16Overflow)
          throw UserError(fmt::format("{} holds {}, which is infinite in bf16; write fp32 instead",
                                      quote(tensor), value));
    from_floats(to, values, out.subspan(first * out_width, values.size() * out_width));
  }
}

void export_weights(const Model& model, const ExportSource& source,
                    const std::vector<SideFile>& side_files, const ExportOptions& options,
                    ThreadPool& pool, const Progress& progress) {
  require(find_file(side_files, kConfigName) != nullptr, "export_weights: no config.json");
  const std::vector<Shard> shards = cut_into_shards(model, options.type, options.shard_bytes);
  JointFolder folder(*options.peers, "export", options.folder, options.replace);
  Writers writers;
  const auto open = [&](AtomicFile::Role role) {
    return [&, role] { writers = open_files(shards, folder.path(), options.type, role); };
  };
  folder.begin(open(AtomicFile::Role::maker),
               options.writes ? open(AtomicFile::Role::joiner) : JointFolder::Act());
  const std::vector<std::string> by_others = folder.agree("written", [&]() -> std::string {
    if (!options.writes) return {};
    write_weights(source, shards, writers, options.type, pool, progress);
    if (folder.leads()) return {};
    std::vector<Index> written;
    for (const auto& writer : writers) {
      writer->finish();
      written.push_back(writer->written());
    }
    return to_bytes(std::span<const Index>(written));
  });
  folder.commit([&] {
    finish_files(writers, by_others);
    if (shards.size() > 1)
      write_file(folder.path() / "model.safetensors.index.json", index_json(shards));
    for (const SideFile& file : side_files)
      write_file(folder.path() / file.name,
                 file.name == kConfigName ? rewrite_hf_config(file.content, file.name, options.type)
                                          : file.content);
  });
}

void export_model(const HostStore& store, const std::vector<SideFile>& side_files,
                  const ExportOptions& options, ThreadPool& pool, const Progress& progress) {
  require(store.model().partition().count <= options.peers->size(),
          "the parts of a model are exported together");
  const ExportSource source{
      .held = [&](Index unit, const ParamDesc& param) { return written_by(store, unit, param); },
      .piece = [](const ParamDesc&) { return kPieceElements; },
      .read =
          [&](Index unit, const ParamDesc& param, Index first, std::span<std::byte> out) {
            std::vector<float> values(out.size() / static_cast<std::size_t>(size_of(options.type)));
            store.read_master(unit, param, first, values);
            convert_weights(FileType::f32, std::as_bytes(std::span(values)), options.type, out,
                            param.name);
          }};
  export_weights(store.model(), source, side_files, options, pool, progress);
}

}  // namespace megatrain::io
