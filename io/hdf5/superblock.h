#pragma once
/// @file
/// The first bytes of an HDF5 file.

#include "io/hdf5/source.h"

namespace megatrain::io::hdf5 {

struct Superblock {
  std::uint64_t end = 0;   ///< bytes that the file says it has
  std::uint64_t root = 0;  ///< address of the root group
};

/// Refuses what does not begin at byte 0, does not count in 64 bits, is one of several files, or is
/// shorter than it says. @throws UserError
Superblock read_superblock(Source& source);

}  // namespace megatrain::io::hdf5
