#pragma once
/// @file
/// Large files that go to and from the disk beside the page cache.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.h"

namespace megatrain::io {

/// What direct I/O asks of offsets, sizes and memory on every file system that has it.
inline constexpr Index kDirectAlignment = 4096;

/// An existing file for transfers of megabytes at a time by several threads: direct where the file
/// system can, else through the page cache, which is dropped behind it.
class DirectFile {
 public:
  enum class Mode : std::uint8_t { read, write };

  /// Writing needs permission to read too: one page is tried, because some file systems take the
  /// flag for direct I/O and then refuse the transfers. @param direct  false: through the cache
  /// @throws UserError when it cannot be opened or is no regular file
  DirectFile(std::filesystem::path path, Mode mode, bool direct = true);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Size when it was opened.
  [[nodiscard]] Index bytes() const { return bytes_; }
  /// Whether transfers go beside the page cache.
  [[nodiscard]] bool direct() const { return direct_.get() >= 0; }

  /// Claims disk space for the first `bytes` of the file without changing what it holds, so that a
  /// full disk shows before the work. Does nothing where the file system cannot.
  /// @throws UserError when the disk is full
  void reserve(Index bytes);
  /// `offset` and the address of `data` are multiples of kDirectAlignment. Whole pages go directly,
  /// what is left of the last one through the cache: nothing beyond the data changes. Threads may
  /// write different ranges at the same time. @throws UserError when the disk is full
  void write(Index offset, std::span<const std::byte> data);
  /// Any bytes, through the page cache, where they stay until sync(): for pages that several
  /// processes of a machine write, none of which may write them beside it.
  /// @throws UserError when the disk is full
  void write_cached(Index offset, std::span<const std::byte> data);
  /// Lets the disk begin with a range of the page cache, so that little is left for sync().
  void begin_writing(Index offset, Index bytes);
  /// `offset`, the address and the size of `out` are multiples of kDirectAlignment. @returns the
  /// bytes read: out.size(), or less at the end of the file. Threads may read at the same time
  Index read(Index offset, std::span<std::byte> out) const;
  /// Makes everything written durable and drops it from the page cache.
  void sync();

 private:
  /// Writes a range of the page cache to the disk and lets go of it.
  void drop(Index offset, Index bytes);

  std::filesystem::path path_;
  FileDescriptor cached_, direct_;
  Index bytes_ = 0;
};

}  // namespace megatrain::io
