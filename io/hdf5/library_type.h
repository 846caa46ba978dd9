#pragma once
/// @file
/// Element types as the library takes them.

#include "io/hdf5/handle.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io::hdf5 {

/// The type as which values of `type` are stored. @throws LogicError when HDF5 has no counterpart
Handle stored_type(const Session& session, FileType type, Hdf5Bf16 bf16);

}  // namespace megatrain::io::hdf5
