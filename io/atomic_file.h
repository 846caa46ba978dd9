#pragma once
/// @file
/// Files and folders that appear whole or not at all: written aside, synced, then renamed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file.h"

namespace megatrain::io {

/// What is written aside has the final name with this suffix, which no user gives a file of theirs:
/// leftovers of killed processes are removed.
inline constexpr std::string_view kAsideSuffix = ".megatrain.tmp";
/// What gives way, where the file system cannot swap names.
inline constexpr std::string_view kReplacedSuffix = ".megatrain.old";

/// A file written aside and published as PATH by commit(); without commit() the destructor removes
/// what was written. What a killed process left is overwritten. One process makes a path; others
/// may join it to write ranges of their own, and are through before it commits.
class AtomicFile {
 public:
  enum class Role : std::uint8_t { maker, joiner };

  /// @throws UserError when it cannot be created, or is not there to be joined
  explicit AtomicFile(std::filesystem::path path, Role role = Role::maker);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Claims disk space for `bytes`, so that a full disk shows before the work. Does nothing where
  /// the file system cannot.
  void reserve(Index bytes);
  /// Writes at a position; several threads may write different ranges.
  void write_at(Index offset, std::span<const std::byte> data);
  /// Writes after the last append.
  void append(std::span<const std::byte> data);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  /// Syncs; the maker then renames over PATH, and syncs the folder.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  Role role_;
  FileDescriptor descriptor_;
  Index end_ = 0;
  bool committed_ = false;
};

/// Writes the file that a person calls `path`: an AtomicFile, where links lead to. What is no
/// regular file (a device, a pipe) stays what it is: the content goes into it.
void write_file(const std::filesystem::path& path, std::string_view content);

/// Whether write_file could begin. A pipe or device is not opened. Leaves what is there as it is.
/// @throws UserError, Error as write_file would
void check_writable(const std::filesystem::path& path);

/// A folder filled aside and published as FOLDER by commit(); without commit() the destructor
/// removes it. What a killed process left is removed first.
class AtomicFolder {
 public:
  /// Creates missing parents. @param replace  an existing FOLDER gives way at commit; else it is
  /// refused now. @throws UserError
  AtomicFolder(std::filesystem::path folder, bool replace);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where FOLDER is filled.
  static std::filesystem::path aside(std::filesystem::path folder);
  /// Where to write. Files in it must be synced by whoever writes them (AtomicFile does).
  [[nodiscard]] const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path folder_, temporary_;
  bool replace_ = false;
  bool committed_ = false;
};

/// Makes renames inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace megatrain::io
