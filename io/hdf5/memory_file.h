#pragma once
/// @file
/// A file that the HDF5 library writes in memory.

#include <filesystem>

#include "io/file.h"

namespace megatrain::io::hdf5 {

/// Holes take no memory, so that it may be as large as what is to be filled in later. The library
/// writes here because it does not survive a disk that is full: a file that it cannot finish stays
/// open for ever and crashes the process at its end.
class MemoryFile {
 public:
  /// What the library is to open: nothing that could be lost or in the way.
  static constexpr const char* kPlaceholder = "/dev/null";

  /// @throws Error when the system has no files in memory
  MemoryFile();
  /// Puts this file behind a descriptor that was opened for kPlaceholder.
  void replace(int descriptor) const;
  /// Writes what is not a hole to a file on disk, whole or not at all. @returns its size
  /// @throws UserError
  Index publish(const std::filesystem::path& path) const;

 private:
  FileDescriptor descriptor_;
};

}  // namespace megatrain::io::hdf5
