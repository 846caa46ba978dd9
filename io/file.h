#pragma once
/// @file
/// Files read at positions. Nothing here maps a file: a mapped file that shrinks kills the process.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/file_descriptor.h"
#include "core/base/types.h"

namespace megatrain::io {

using megatrain::FileDescriptor;

/// The user may not do that to the file. Says nothing about what it holds.
class PermissionError : public UserError {
 public:
  using UserError::UserError;
};

/// The system failed: a failing disk, too many open files. Says nothing about what the file holds.
class SystemError : public Error {
 public:
  using Error::Error;
};

/// Throws for a failed call: UserError for what the user can mend (no such file, a full disk, ...),
/// PermissionError among them, SystemError otherwise. @param doing  "read", "write", ...
[[noreturn]] void throw_system_error(std::string_view doing, const std::filesystem::path& path,
                                     int error);

/// Opens a regular file. @param flags  O_RDONLY or O_RDWR
/// @param bytes  set to its size
/// @throws UserError, Error when it cannot be opened or is no regular file
FileDescriptor open_regular_file(const std::filesystem::path& path, int flags, Index& bytes);

/// Claims disk space for the first `bytes` of a file, so that a full disk shows before the work:
/// what is written stays, holes read as zeros. Does nothing where the file system cannot.
/// @param grows  the file's size becomes `bytes` at least; else it stays
void reserve_disk(const FileDescriptor& file, const std::filesystem::path& path, Index bytes,
                  bool grows);

/// A regular file open for reading. Reads may come from several threads.
class InputFile {
 public:
  /// @throws UserError when it cannot be opened or is no regular file
  explicit InputFile(std::filesystem::path path);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Size when it was opened.
  [[nodiscard]] Index bytes() const { return bytes_; }
  /// Fills `out` from `offset`. @throws Error when the file ends before (cut since it was opened)
  void read(Index offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  Index bytes_ = 0;  // before what sets it
  FileDescriptor descriptor_;
};

/// Whether something has that name (a broken link has not).
bool file_exists(const std::filesystem::path& path);

/// Whether `name` names a file of a folder and leads nowhere else: names come from files that may
/// be hostile.
bool is_plain_name(std::string_view name);

/// The whole of a small file. @throws UserError when it is larger than `limit` bytes
std::string read_whole_file(const std::filesystem::path& path, Index limit);

}  // namespace megatrain::io
