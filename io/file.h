#pragma once
/// @file
/// Files read at positions. Nothing here maps a file: a mapped file that shrinks kills the process.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/types.h"

namespace megatrain::io {

/// Owns a descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  [[nodiscard]] int get() const { return descriptor_; }
  /// Closes now. @returns false when the system reports a failure (errno is set)
  bool close();

 private:
  int descriptor_ = -1;
};

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
  FileDescriptor descriptor_;
  Index bytes_ = 0;
};

/// Whether something has that name (a broken link has not).
bool file_exists(const std::filesystem::path& path);

/// Whether `name` names a file of a folder and leads nowhere else: names come from files that may
/// be hostile.
bool is_plain_name(std::string_view name);

/// The whole of a small file. @throws UserError when it is larger than `limit` bytes
std::string read_whole_file(const std::filesystem::path& path, Index limit);

}  // namespace megatrain::io
