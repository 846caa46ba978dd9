#pragma once
/// @file
/// The datasets of a checkpoint as the state of a model.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/state_layout.h"
#include "io/checkpoint/training_record.h"

namespace megatrain::io {

/// What of a checkpoint is wanted.
enum class LoadParts : std::uint8_t {
  all,      ///< masters and moments: training goes on
  weights,  ///< masters alone
};

/// A wanted tensor, and what the manifest says about it.
struct StateSource {
  StateTensor tensor;
  const ManifestDataset* entry = nullptr;
};

/// The type of the moments that a checkpoint holds; nullopt: none.
std::optional<DType> moments_in(const Manifest& manifest);

/// Finds every wanted tensor of the model, unit by unit and part by part, and refuses what is left
/// over. Nothing is read. @param folder  the checkpoint, for messages
/// @throws UserError naming a tensor that the model or the checkpoint lacks, or that has another
///         shape or type: of a training state, masters are fp32 and moments all of one type
std::vector<StateSource> match_state(const Manifest& manifest, const std::filesystem::path& folder,
                                     const Model& model, LoadParts parts);

/// What a checkpoint says about itself.
struct CheckpointContents {
  ModelConfig config;
  LoadParts parts = LoadParts::all;                       ///< what it holds
  std::optional<TrainingRecord> training = std::nullopt;  ///< absent: training cannot go on
};

/// Reads one of the small files of a checkpoint.
using SideFileReader = std::function<std::string(std::string_view name)>;

/// Checks that a checkpoint needs nothing else: its config.json describes a model, it holds exactly
/// the tensors of that model, and its training.json, where it has one, can be read and comes with
/// moments. Values are not read.
/// @throws UserError
CheckpointContents check_contents(const Manifest& manifest, const std::filesystem::path& folder,
                                  const SideFileReader& read);
CheckpointContents check_contents(const Checkpoint& checkpoint);

/// Refuses a training record of another step than the manifest's, or that says that moments are
/// kept otherwise than they are stored. @throws DamagedCheckpoint
void check_record(const Manifest& manifest, const TrainingRecord& record,
                  const std::filesystem::path& folder);

/// Whether the manifest lists a small file of that name.
bool has_file(const Manifest& manifest, std::string_view name);

}  // namespace megatrain::io
