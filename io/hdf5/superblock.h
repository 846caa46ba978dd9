#pragma once
/// @file
/// The first bytes of an HDF5 file.

#include "io/file.h"

namespace megatrain::io::hdf5 {

/// Checks what can be checked without the library: that it is an HDF5 file that begins at byte 0,
/// counts in 64 bits, is one file, and is as long as it says. @returns the bytes that it says
/// @throws UserError
Index check_superblock(const InputFile& file);

}  // namespace megatrain::io::hdf5
