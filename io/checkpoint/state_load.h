#pragma once
/// @file
/// A checkpoint into a host store.

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/state_layout.h"
#include "io/pieces.h"

namespace megatrain::io {

/// What of a checkpoint goes into the store.
enum class LoadParts : std::uint8_t {
  all,      ///< masters and moments: training goes on
  weights,  ///< masters alone: moments stay as they are
};

/// Checks that the checkpoint holds exactly the tensors of the store's model, then reads them in
/// blocks, each compared with its checksum, by all threads of the pool. On an error the store's
/// content is undefined.
/// @throws DamagedCheckpoint; UserError naming a tensor that the model or the checkpoint lacks, or
///         that has another shape or type
void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress = {});

}  // namespace megatrain::io
