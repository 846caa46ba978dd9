#pragma once
/// @file
/// A checkpoint into a host store.

#include "io/checkpoint/peers.h"
#include "io/checkpoint/state_match.h"
#include "io/pieces.h"

namespace megatrain::io {

/// What becomes of moments whose type in the checkpoint is not the store's.
enum class OtherMoments : std::uint8_t {
  refused,
  converted,  ///< to bf16 rounded to nearest, ties to even; to fp32 exactly
};

/// Checks that the checkpoint holds exactly the tensors of the store's model, then reads what the
/// store holds of the wanted ones (a slice, of a part of the model) in blocks, each compared with
/// its checksum, by all threads of the pool; the rest of the store stays as it is. On an error the
/// store's content is undefined.
/// @param peers  who load together: what is wrong for one of them is thrown on all
/// @throws DamagedCheckpoint; UserError naming a tensor that the model or the checkpoint lacks, or
///         that has another shape or type
void load_state(const Checkpoint& checkpoint, HostStore& store, LoadParts parts, ThreadPool& pool,
                const Progress& progress = {}, Peers& peers = Peers::alone(),
                OtherMoments other_moments = OtherMoments::refused);

}  // namespace megatrain::io
