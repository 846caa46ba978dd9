#pragma once
/// @file
/// The model that --model names.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/store/host_store.h"
#include "io/hf_folder.h"
#include "io/pieces.h"

namespace megatrain::launcher {

/// A folder's model, or a preset's, before any weight is read.
struct ModelSource {
  std::string name;  ///< as --model has it
  ModelConfig config;
  std::vector<io::SideFile> side_files;         ///< of the folder that training will write
  std::optional<std::filesystem::path> folder;  ///< absent: a preset, with random weights
  std::vector<std::string> notes;               ///< for a person
};

/// @throws UserError when `name` is neither a folder nor a preset, or as io::HfFolder does
ModelSource find_model(const std::string& name);

/// Checks, before memory is taken, all of the folder's weights that can be checked without reading
/// them: headers, names, shapes, types and sizes. A preset has none.
/// @throws UserError naming file, tensor, expected and actual, as fill_store() would
void check_weights(const ModelSource& source, const Model& model);

/// Reads the weights of the folder (a model's or a checkpoint's), or makes the preset's initial
/// ones from `seed`.
void fill_store(HostStore& store, const ModelSource& source, std::uint64_t seed, ThreadPool& pool,
                const io::Progress& progress);

}  // namespace megatrain::launcher
