#pragma once
/// @file
/// What an update costs memory, without the update: the ceiling that AdamW is measured against.

#include "core/optim/adamw.h"

namespace megatrain {

/// Reads what adamw_update reads and writes what it writes, all arrays side by side, and changes
/// nothing: as fast as this machine reads and writes such arrays. Cut into pieces and handed out
/// like adamw_update's.
/// @param slice  of a multiple of kUpdatePiece elements
void read_and_write(const AdamWSlice& slice, ThreadPool& pool);

}  // namespace megatrain
