#include "io/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "io/text.h"

namespace megatrain::io {

namespace {

bool aligned(Index value) { return value % kDirectAlignment == 0; }
bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kDirectAlignment == 0;
}

/// Whether one page really comes through a descriptor opened with O_DIRECT: some file systems take
/// the flag and refuse the transfers.
bool transfers(int descriptor) {
  struct alignas(kDirectAlignment) Page {
    std::byte bytes[kDirectAlignment];
  };
  const auto page = std::make_unique<Page>();
  return ::pread(descriptor, page->bytes, sizeof(page->bytes), 0) >= 0;
}

/// Moves the bytes at `offset` by `transfer(descriptor, address, bytes, offset)`: whole pages
/// through `direct` while offset and address are aligned, all else through `cached`. @returns the
/// bytes moved: all, or less where a transfer moved none (the end of a file). *through_cache: of
/// these, cached
template <typename Byte, typename Transfer>
Index transfer_all(int direct, int cached, Index offset, std::span<Byte> left, Index* through_cache,
                   Transfer transfer) {
  const Index first = offset;
  bool refused = direct < 0;
  while (!left.empty()) {
    const std::size_t pages = left.size() / kDirectAlignment * kDirectAlignment;
    const bool beside = !refused && pages > 0 && aligned(offset) && aligned(left.data());
    const ssize_t count =
        transfer(beside ? direct : cached, left.data(), beside ? pages : left.size(), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      // Not this file system, or not this transfer (a size limit in the middle of a page): the
      // cached descriptor does it, or says what is the matter.
      if (beside && errno == EINVAL) {
        refused = true;
        continue;
      }
      return -1;
    }
    if (count == 0) break;
    if (!beside) *through_cache += count;
    left = left.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return offset - first;
}

}  // namespace

DirectFile::DirectFile(std::filesystem::path path, Mode mode, bool direct)
    : path_(std::move(path)) {
  const int access = mode == Mode::read ? O_RDONLY : O_RDWR;
  cached_ = open_regular_file(path_, access, bytes_);
  if (!direct) return;
  direct_ = FileDescriptor(::open(path_.c_str(), access | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
  if (direct_.get() < 0) {
    if (errno != EINVAL) throw_system_error("open", path_, errno);
  } else if (!transfers(direct_.get())) {
    direct_.close();
  }
}

void DirectFile::reserve(Index bytes) { reserve_disk(cached_, path_, bytes, /*grows=*/false); }

void DirectFile::write(Index offset, std::span<const std::byte> data) {
  require(offset >= 0 && aligned(offset) && aligned(data.data()), "DirectFile::write: alignment");
  Index cached = 0;
  const auto size = static_cast<Index>(data.size());
  const Index moved = transfer_all(direct_.get(), cached_.get(), offset, data, &cached,
                                   [](int descriptor, const std::byte* from, std::size_t bytes,
                                      Index at) { return ::pwrite(descriptor, from, bytes, at); });
  if (moved < 0) throw_system_error("write", path_, errno);
  if (moved != size) throw_system_error("write", path_, EIO);
  // The tail of a direct write is less than a page and waits for sync(). Anything more is written
  // out and dropped now: dirty pages of a whole checkpoint would push out what others use.
  if (cached >= kDirectAlignment) drop(offset, size);
}

void DirectFile::write_cached(Index offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t count = ::pwrite(cached_.get(), data.data(), data.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_system_error("write", path_, count < 0 ? errno : EIO);
    data = data.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void DirectFile::begin_writing(Index offset, Index bytes) {
  // What is the matter with the disk, sync() will say.
  (void)::sync_file_range(cached_.get(), offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void DirectFile::drop(Index offset, Index bytes) {
  // EINVAL, ENOSYS: a file system or sandbox without it; fsync does the work later.
  if (::sync_file_range(
          cached_.get(), offset, bytes,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
      errno != EINVAL && errno != ENOSYS)
    throw_system_error("write", path_, errno);
  ::posix_fadvise(cached_.get(), offset, bytes, POSIX_FADV_DONTNEED);
}

Index DirectFile::read(Index offset, std::span<std::byte> out) const {
  require(offset >= 0 && aligned(offset) && aligned(out.data()) &&
              aligned(static_cast<Index>(out.size())),
          "DirectFile::read: alignment");
  Index cached = 0;
  const Index moved = transfer_all(direct_.get(), cached_.get(), offset, out, &cached,
                                   [](int descriptor, std::byte* to, std::size_t bytes, Index at) {
                                     return ::pread(descriptor, to, bytes, at);
                                   });
  if (moved < 0) throw_system_error("read", path_, errno);
  if (cached >= kDirectAlignment)
    ::posix_fadvise(cached_.get(), offset, moved, POSIX_FADV_DONTNEED);
  return moved;
}

void DirectFile::sync() {
  if (::fsync(cached_.get()) != 0) throw_system_error("sync", path_, errno);
  ::posix_fadvise(cached_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace megatrain::io
