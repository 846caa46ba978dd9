#include "launcher/session/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/byte_tokenizer.h"
#include "io/checkpoint/state_load.h"
#include "io/weight_files.h"

namespace megatrain::launcher {

namespace fs = std::filesystem;

ModelSource find_model(const std::string& name) {
  ModelSource source;
  source.name = name;
  std::error_code ignored;
  if (fs::exists(name, ignored)) {
    const io::HfFolder folder{fs::path(name)};
    source.config = folder.config().model;
    source.side_files = folder.side_files();
    source.folder = folder.path();
    source.notes = folder.config().notes;
    return source;
  }
  const std::vector<std::string> presets = preset_names();
  if (std::ranges::find(presets, name) == presets.end())
    throw UserError(fmt::format(
        "--model {}: there is no such folder, and no preset of that name. A folder holds "
        "config.json and safetensors files, as Hugging Face has them; the presets are {}",
        name, fmt::join(presets, ", ")));
  source.config = preset(name);
  source.side_files =
      io::preset_side_files(source.config, source.config.vocabulary == io::kByteVocabulary);
  return source;
}

namespace {

bool is_checkpoint(const fs::path& folder) { return io::file_exists(folder / io::kManifestName); }

}  // namespace

void check_weights(const ModelSource& source, const Model& model) {
  if (!source.folder) return;
  if (is_checkpoint(*source.folder)) {
    const io::Checkpoint checkpoint(*source.folder);
    (void)io::match_state(checkpoint.manifest(), checkpoint.folder(), model,
                          io::LoadParts::weights);
  } else {
    (void)io::match_weights(io::WeightFiles(*source.folder), model);
  }
}

void fill_store(HostStore& store, const ModelSource& source, std::uint64_t seed, ThreadPool& pool,
                const io::Progress& progress) {
  if (!source.folder)
    initialize(store, seed, pool);
  else if (is_checkpoint(*source.folder))
    io::load_state(io::Checkpoint(*source.folder), store, io::LoadParts::weights, pool, progress);
  else
    io::load_weights(*source.folder, store, pool, progress);
}

}  // namespace megatrain::launcher
