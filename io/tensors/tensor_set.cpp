#include "io/tensors/tensor_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/checkpoint/checkpoint_files.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"
#include "io/text.h"
#include "io/weight_files.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

/// A tensor of an HDF5 file that `owner` keeps open.
NamedTensor from_hdf5(const Hdf5File& file, const Hdf5Dataset& dataset,
                      const std::shared_ptr<const void>& owner) {
  return {.name = dataset.path,
          .type = dataset.type,
          .shape = dataset.shape,
          .bytes = dataset.bytes,
          .file = file.path().filename().string(),
          .refusal = dataset.refusal,
          .read = [owner, &file, &dataset](Index first, std::span<std::byte> out) {
            file.read(dataset, first, out);
          }};
}

NamedTensor from_safetensors(const SafetensorsFile& file, const TensorInfo& tensor,
                             const std::shared_ptr<const void>& owner) {
  return {.name = tensor.name,
          .type = tensor.type,
          .shape = tensor.shape,
          .bytes = tensor.end - tensor.begin,
          .file = file.path().filename().string(),
          .read = [owner, &file, &tensor](Index first, std::span<std::byte> out) {
            file.read(tensor, first, out);
          }};
}

void open_checkpoint(TensorSet& set) {
  const auto checkpoint = std::make_shared<const Checkpoint>(set.path);
  for (const auto& [path, tensor] : checkpoint->tensors())
    set.tensors.push_back(from_hdf5(*tensor.file, *tensor.dataset, checkpoint));
  for (const ManifestShard& shard : checkpoint->manifest().shards)
    set.files.push_back({shard.name, shard.bytes});
  set.checkpoint = checkpoint;
}

void open_hdf5(TensorSet& set) {
  const auto file = std::make_shared<const Hdf5File>(set.path);
  for (const Hdf5Dataset& dataset : file->datasets())
    set.tensors.push_back(from_hdf5(*file, dataset, file));
  set.files.push_back({set.path.filename().string(), file->bytes()});
}

void open_folder(TensorSet& set) {
  const auto files = std::make_shared<const WeightFiles>(set.path);
  for (const auto& [name, tensor] : files->tensors())
    set.tensors.push_back(from_safetensors(*tensor.file, *tensor.tensor, files));
  for (const std::string& name : files->names())
    set.files.push_back({name, InputFile(set.path / name).bytes()});
}

void open_safetensors(TensorSet& set) {
  const auto file = std::make_shared<const SafetensorsFile>(set.path);
  for (const TensorInfo& tensor : file->header().tensors)
    set.tensors.push_back(from_safetensors(*file, tensor, file));
  set.files.push_back({set.path.filename().string(), InputFile(set.path).bytes()});
}

TensorSet::Kind kind_of_folder(const fs::path& folder) {
  if (file_exists(folder / kManifestName)) return TensorSet::Kind::checkpoint;
  // The weights say more than config.json, which a run folder's model has too.
  for (const std::string_view name : {kConfigName, std::string_view("model.safetensors"),
                                      std::string_view("model.safetensors.index.json")})
    if (file_exists(folder / name)) return TensorSet::Kind::hf_folder;
  throw UserError(
      fmt::format("{} is neither a checkpoint (it holds no {}) nor a Hugging Face folder (no "
                  "config.json, no model.safetensors){}",
                  quote(folder.string()), kManifestName, hint_at_model(folder)));
}

TensorSet::Kind kind_of_file(const fs::path& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  if (path.filename() == kViewName && file_exists(path.parent_path() / kManifestName))
    throw UserError(fmt::format(
        "{} shows other tools the tensors of a checkpoint, which are in another file or "
        "several; look into the checkpoint instead: {}",
        quote(path.string()), quote(path.has_parent_path() ? path.parent_path().string() : ".")));
  const InputFile file(path);
  std::array<std::byte, kSignature.size()> start{};
  file.read(0, std::span(start).first(
                   std::min<std::size_t>(start.size(), static_cast<std::size_t>(file.bytes()))));
  const std::string extension = path.extension().string();
  if (std::memcmp(start.data(), kSignature.data(), start.size()) == 0 || extension == ".h5" ||
      extension == ".hdf5")
    return TensorSet::Kind::hdf5;
  return TensorSet::Kind::safetensors;
}

void sort_by_name(std::vector<NamedTensor>& tensors) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
}

}  // namespace

std::string_view name(TensorSet::Kind kind) {
  switch (kind) {
    case TensorSet::Kind::hdf5:
      return "HDF5 file";
    case TensorSet::Kind::checkpoint:
      return "checkpoint";
    case TensorSet::Kind::hf_folder:
      return "Hugging Face folder";
    case TensorSet::Kind::safetensors:
      return "safetensors file";
  }
  throw LogicError("no such kind of tensor set");
}

TensorSet open_tensors(const fs::path& path) {
  std::error_code ignored;
  TensorSet set{.path = path};
  set.kind = fs::is_directory(path, ignored) ? kind_of_folder(path) : kind_of_file(path);
  switch (set.kind) {
    case TensorSet::Kind::hdf5:
      open_hdf5(set);
      break;
    case TensorSet::Kind::checkpoint:
      open_checkpoint(set);
      break;
    case TensorSet::Kind::hf_folder:
      open_folder(set);
      break;
    case TensorSet::Kind::safetensors:
      open_safetensors(set);
      break;
  }
  sort_by_name(set.tensors);
  return set;
}

std::vector<NamedTensor> weights_of(const TensorSet& set) {
  const bool hdf5 = set.kind == TensorSet::Kind::hdf5 || set.kind == TensorSet::Kind::checkpoint;
  std::vector<NamedTensor> weights;
  for (NamedTensor tensor : set.tensors) {
    if (hdf5) {
      if (tensor.is_optimizer_state()) continue;
      tensor.name.erase(0, tensor.name.starts_with(kParamsGroup) ? kParamsGroup.size() : 1);
    }
    weights.push_back(std::move(tensor));
  }
  sort_by_name(weights);
  return weights;
}

}  // namespace megatrain::io
