#include "io/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "io/json.h"
#include "io/text.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr Index kLargestIndex = 100'000'000;

/// Matches parameters with tensors, checking everything that can be checked without reading.
class Matcher {
 public:
  Matcher(const WeightFiles& files, const Model& model)
      : files_(files),
        folder_(files.folder().string()),
        gpt2_(model.config().model_type == "gpt2") {
    for (Index unit = 0; unit < model.unit_count(); ++unit)
      for (const ParamDesc& param : model.unit(unit).params) sources_.push_back(match(unit, param));
    refuse_leftovers();
  }

  [[nodiscard]] std::vector<WeightSource> take() { return std::move(sources_); }

 private:
  WeightSource match(Index unit, const ParamDesc& param) {
    std::vector<std::string> names = {param.name};
    names.insert(names.end(), param.aliases.begin(), param.aliases.end());
    std::vector<WeightTensor> found;
    for (const std::string& name : names)
      if (const auto source = find(name)) found.push_back(*source);
    if (found.empty())
      throw UserError(fmt::format("{}: tensor {} of shape {} is missing", quote(folder_),
                                  quote(param.name), shape_text(param.whole_shape)));
    for (const WeightTensor& source : found) check(source, param);
    return {unit, &param, found.front(), {found.begin() + 1, found.end()}};
  }

  /// By its name, or for gpt2 also without the prefix that the bare model lacks.
  std::optional<WeightTensor> find(const std::string& name) {
    constexpr std::string_view kPrefix = "transformer.";
    auto found = files_.tensors().find(name);
    if (gpt2_ && name.starts_with(kPrefix)) {
      const std::string bare = name.substr(kPrefix.size());
      const auto other = files_.tensors().find(bare);
      if (other != files_.tensors().end() && found != files_.tensors().end())
        throw UserError(
            fmt::format("{}: both {} and {} are there", quote(folder_), quote(name), quote(bare)));
      if (found == files_.tensors().end()) found = other;
    }
    if (found == files_.tensors().end()) return std::nullopt;
    used_.insert(found->first);
    return found->second;
  }

  static void check(const WeightTensor& source, const ParamDesc& param) {
    const std::string file = source.file->path().string();
    if (source.tensor->shape != param.whole_shape)
      throw UserError(fmt::format("{}: tensor {} has shape {}, but config.json asks for {}", file,
                                  quote(source.tensor->name), shape_text(source.tensor->shape),
                                  shape_text(param.whole_shape)));
    if (!converts_to_float(source.tensor->type))
      throw UserError(fmt::format("{}: tensor {} is {}; weights are read from F32, BF16 or F16",
                                  file, quote(source.tensor->name), name(source.tensor->type)));
  }

  /// Buffers that old versions of transformers saved with the weights.
  [[nodiscard]] bool harmless(std::string_view name) const {
    return name.ends_with(".rotary_emb.inv_freq") ||
           (gpt2_ && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")));
  }

  void refuse_leftovers() const {
    std::vector<std::string> names;
    for (const auto& [name, source] : files_.tensors())
      if (!used_.contains(name) && !harmless(name)) names.push_back(quote(name));
    if (names.empty()) return;
    const std::size_t count = names.size();
    names.resize(std::min<std::size_t>(count, 5));
    throw UserError(fmt::format(
        "{}: {} tensors are no part of the model that config.json "
        "describes: {}{}",
        quote(folder_), count, fmt::join(names, ", "), count > names.size() ? ", ..." : ""));
  }

  const WeightFiles& files_;
  std::string folder_;
  bool gpt2_;
  std::unordered_set<std::string> used_;
  std::vector<WeightSource> sources_;
};

}  // namespace

WeightFiles::WeightFiles(fs::path folder) : folder_(std::move(folder)) {
  if (file_exists(folder_ / kSingle)) {
    open(std::string(kSingle));
  } else if (file_exists(folder_ / kIndex)) {
    open_shards();
  } else if (file_exists(folder_ / "pytorch_model.bin") ||
             file_exists(folder_ / "pytorch_model.bin.index.json")) {
    throw UserError(
        fmt::format("{} holds pickled weights, which are not read: save the model "
                    "again with safe_serialization=True",
                    quote(folder_.string())));
  } else {
    throw UserError(
        fmt::format("{} holds neither {} nor {}", quote(folder_.string()), kSingle, kIndex));
  }
}

void WeightFiles::open(const std::string& name) {
  files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
  const SafetensorsFile& file = *files_.back();
  for (const TensorInfo& tensor : file.header().tensors) {
    const auto [entry, is_new] = tensors_.emplace(tensor.name, WeightTensor{&file, &tensor});
    if (!is_new)
      throw UserError(fmt::format("{}: tensor {} is in two files, {} and {}",
                                  quote(folder_.string()), quote(tensor.name),
                                  entry->second.file->path().filename().string(), name));
  }
}

void WeightFiles::open_shards() {
  const std::string source = (folder_ / kIndex).string();
  const JsonValue root = parse_json(read_whole_file(folder_ / kIndex, kLargestIndex), source);
  const JsonValue* map = root.find("weight_map");
  const auto* entries = map == nullptr ? nullptr : map->as<JsonValue::Object>();
  if (entries == nullptr)
    throw UserError(fmt::format("{}: 'weight_map' must be an object", source));
  std::map<std::string, std::vector<std::string>> shards;
  for (const JsonMember& entry : *entries) {
    const auto* name = entry.value.as<std::string>();
    if (name == nullptr)
      throw UserError(
          fmt::format("{}: the file of tensor {} must be a string", source, quote(entry.name)));
    if (!is_plain_name(*name))
      throw UserError(
          fmt::format("{}: tensor {} is said to be in {}, which is no plain file "
                      "name",
                      source, quote(entry.name), quote(*name)));
    shards[*name].push_back(entry.name);
  }
  for (const auto& [name, tensors] : shards) {
    if (!file_exists(folder_ / name))
      throw UserError(fmt::format("{}: the file {} is missing", source, quote(name)));
    open(name);
    for (const std::string& tensor : tensors)
      if (files_.back()->find(tensor) == nullptr)
        throw UserError(fmt::format("{}: tensor {} is said to be in {}, but is not", source,
                                    quote(tensor), quote(name)));
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& file : files_) names.push_back(file->path().filename().string());
  return names;
}

std::vector<WeightSource> match_weights(const WeightFiles& files, const Model& model) {
  return Matcher(files, model).take();
}

void check_copies(const WeightSource& source, Index first, std::span<const float> values) {
  std::vector<float> others(source.copies.empty() ? 0 : values.size());
  for (const WeightTensor& copy : source.copies) {
    copy.file->read_floats(*copy.tensor, first, others);
    if (std::memcmp(values.data(), others.data(), values.size_bytes()) != 0)
      throw UserError(fmt::format(
          "{}: tensor {} differs from {}, but config.json ties them (tie_word_embeddings): one of "
          "them would be lost",
          copy.file->path().string(), quote(copy.tensor->name), quote(source.from.tensor->name)));
  }
}

}  // namespace megatrain::io
