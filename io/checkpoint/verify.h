#pragma once
/// @file
/// Reads a checkpoint from end to end.

#include "io/checkpoint/checkpoint.h"
#include "io/pieces.h"

namespace megatrain::io {

/// Reads every block of every tensor and compares checksums. Reading stops at the first difference.
/// @throws DamagedCheckpoint naming file, tensor and place
void verify_values(const Checkpoint& checkpoint, BlockPool& blocks, ThreadPool& pool,
                   const Progress& progress = {});

}  // namespace megatrain::io
