#pragma once
/// @file
/// Element types in HDF5's words and in ours.

#include <string>

#include "io/file_type.h"
#include "io/hdf5/handle.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io::hdf5 {

/// What a stored type is.
struct StoredType {
  FileType type = FileType::u8;
  std::string refusal = {};  ///< why there is none; empty: there is
};

/// Recognises a type by its exact bit layout; nothing is ever converted.
StoredType recognise(const Session& session, hid_t type);
/// `stored`, or what the attribute "dtype" calls it, where unsigned integers of that width stand
/// for a type that HDF5 does not have or a tool did not know.
FileType named_type(FileType stored, std::string_view dtype);
/// The type as which values of `type` are stored; owned by the caller. @throws LogicError when HDF5
/// has no counterpart
Handle stored_type(const Session& session, FileType type, Hdf5Bf16 bf16);

}  // namespace megatrain::io::hdf5
