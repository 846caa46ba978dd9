#include "io/checkpoint/state_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/named_values.h"
#include "io/hf_config.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

bool is_moment(std::string_view path) { return path.starts_with(kOptimizerGroup); }

void check(const StateTensor& tensor, const ManifestDataset& entry, const std::string& folder,
           LoadParts parts) {
  if (entry.shape != tensor.param->whole_shape)
    throw UserError(fmt::format("{}: {} has shape {}, but the model asks for {}", folder,
                                quote(entry.path), shape_text(entry.shape),
                                shape_text(tensor.param->whole_shape)));
  const bool weights_alone = parts == LoadParts::weights;
  if (weights_alone ? !converts_to_float(entry.type) : entry.type != file_type(tensor.type))
    throw UserError(fmt::format("{}: {} is {}; {}", folder, quote(entry.path), name(entry.type),
                                weights_alone ? "weights are read from F32, BF16 or F16"
                                              : "the weights of a training state are F32, its "
                                                "moments all F32 or all BF16"));
}

}  // namespace

std::optional<DType> moments_in(const Manifest& manifest) {
  for (const ManifestShard& shard : manifest.shards)
    for (const ManifestDataset& entry : shard.datasets)
      if (is_moment(entry.path)) return entry.type == FileType::bf16 ? DType::bf16 : DType::f32;
  return std::nullopt;
}

std::vector<StateSource> match_state(const Manifest& manifest, const std::filesystem::path& folder,
                                     const Model& model, LoadParts parts) {
  std::map<std::string_view, const ManifestDataset*> entries;
  for (const ManifestShard& shard : manifest.shards)
    for (const ManifestDataset& entry : shard.datasets) entries[entry.path] = &entry;

  std::vector<StateSource> sources;
  std::set<std::string> known;
  const StateForm form{.moments = moments_in(manifest).value_or(DType::f32)};
  for (const StateShard& shard : state_shards(model, std::numeric_limits<Index>::max(), form))
    for (const StateTensor& tensor : shard.tensors) {
      const std::string path = tensor.path();
      known.insert(path);
      if (parts == LoadParts::weights && tensor.part != StatePart::master) continue;
      const auto found = entries.find(path);
      if (found == entries.end())
        throw UserError(fmt::format("{}: {} of shape {} is missing{}", folder.string(), quote(path),
                                    shape_text(tensor.param->whole_shape),
                                    tensor.part == StatePart::master
                                        ? ""
                                        : "; it holds weights without an optimizer's state, which "
                                          "--model can start from but --resume cannot"));
      check(tensor, *found->second, folder.string(), parts);
      sources.push_back({tensor, found->second});
    }
  for (const auto& [path, entry] : entries)
    if (!known.contains(std::string(path)))
      throw UserError(fmt::format("{}: {} is no part of the model that its config.json describes",
                                  folder.string(), quote(path)));
  return sources;
}

CheckpointContents check_contents(const Manifest& manifest, const std::filesystem::path& folder,
                                  const SideFileReader& read) {
  if (!has_file(manifest, kConfigName))
    throw UserError(fmt::format("{} does not say what model it holds: it has no {}",
                                folder.string(), kConfigName));
  CheckpointContents contents{
      parse_hf_config(read(kConfigName), (folder / kConfigName).string()).model};
  if (has_file(manifest, kTrainingName))
    contents.training =
        parse_training_record(read(kTrainingName), (folder / kTrainingName).string());
  if (contents.training) check_record(manifest, *contents.training, folder);
  contents.parts = contents.training || moments_in(manifest) ? LoadParts::all : LoadParts::weights;
  const Model model(contents.config);
  (void)match_state(manifest, folder, model, contents.parts);
  if (manifest.aliases != tied_names(model))
    throw UserError(fmt::format("{}: its 'aliases' are not the tied names of the model",
                                (folder / kManifestName).string()));
  return contents;
}

CheckpointContents check_contents(const Checkpoint& checkpoint) {
  return check_contents(checkpoint.manifest(), checkpoint.folder(),
                        [&](std::string_view name) { return checkpoint.read_file(name); });
}

void check_record(const Manifest& manifest, const TrainingRecord& record,
                  const std::filesystem::path& folder) {
  if (record.state.step != manifest.step)
    throw DamagedCheckpoint(fmt::format("{}: {} is of step {}, but {} of step {}", folder.string(),
                                        kTrainingName, record.state.step, kManifestName,
                                        manifest.step));
  const auto format = [&](std::string_view option) -> std::string_view {
    const std::string* value = find_value(record.options, option);
    return value != nullptr ? *value : name(DType::f32);  // written before there was a choice
  };
  const std::string_view moments = format(kMomentsOption);
  const std::optional<DType> stored = moments_in(manifest);
  if (stored && moments != name(*stored))
    throw DamagedCheckpoint(
        fmt::format("{}: {} says that moments are kept in {}, but they are "
                    "stored in {}",
                    folder.string(), kTrainingName, quote(moments), name(*stored)));
  const std::string_view masters = format(kMastersOption);
  if (masters != name(DType::f32) && masters != name(DType::bf16))
    throw DamagedCheckpoint(
        fmt::format("{}: {} says that masters are kept in {}, which is no format", folder.string(),
                    kTrainingName, quote(masters)));
}

bool has_file(const Manifest& manifest, std::string_view name) {
  return std::ranges::find(manifest.files, name, &ManifestFile::name) != manifest.files.end();
}

}  // namespace megatrain::io
