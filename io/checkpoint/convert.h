#pragma once
/// @file
/// Weights between Hugging Face folders and checkpoints, without a model in memory.

#include <filesystem>

#include "core/base/types.h"
#include "io/hdf5/hdf5_writer.h"
#include "io/pieces.h"

namespace megatrain::io {

struct ConvertOptions {
  std::filesystem::path from;
  std::filesystem::path to;  ///< appears whole or not at all
  DType type = DType::f32;   ///< of the weights written; equal types keep every bit
  Index shard_bytes = 0;     ///< most bytes of a file; a checkpoint's units are never cut
  bool replace = false;      ///< what is at `to` gives way
  int threads = 1;           ///< at most 4 are used: disks are slower, and memory is bounded
};

/// A checkpoint of step 0 without optimizer states and training.json.
/// @throws UserError for whatever keeps the folder from being this model
void folder_to_checkpoint(const ConvertOptions& options, Hdf5Bf16 bf16,
                          const Progress& progress = {});

/// A folder that AutoModelForCausalLM opens. Each block read is compared with its checksum.
/// @throws UserError, DamagedCheckpoint
void checkpoint_to_folder(const ConvertOptions& options, const Progress& progress = {});

}  // namespace megatrain::io
