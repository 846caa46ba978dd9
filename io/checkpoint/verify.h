#pragma once
/// @file
/// Reads a checkpoint from end to end.

#include <filesystem>

#include "io/checkpoint/checkpoint.h"
#include "io/pieces.h"

namespace megatrain::io {

/// Refuses a dataset that says so of another type than it is stored in, or of one that there is
/// not. One that does not say, as other tools write it, is as good as its type.
/// @throws DamagedCheckpoint naming file, dataset, attribute and both types
void check_state_format(const std::filesystem::path& file, const Hdf5Dataset& dataset);

/// Checks the state format of every tensor, then reads every block of them and compares checksums.
/// Reading stops at the first difference.
/// @throws DamagedCheckpoint naming file, tensor and place
void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress = {});

}  // namespace megatrain::io
