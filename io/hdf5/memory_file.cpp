#include "io/hdf5/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "io/atomic_file.h"

namespace megatrain::io::hdf5 {

MemoryFile::MemoryFile() : descriptor_(::memfd_create("megatrain-hdf5", MFD_CLOEXEC)) {
  if (descriptor_.get() < 0) throw_system_error("create", "a file in memory", errno);
}

void MemoryFile::replace(int descriptor) const {
  if (::dup3(descriptor_.get(), descriptor, O_CLOEXEC) < 0)
    throw_system_error("write to", "a file in memory", errno);
}

Index MemoryFile::publish(const std::filesystem::path& path) const {
  constexpr Index kPiece = Index{1} << 20;
  const Index bytes = ::lseek(descriptor_.get(), 0, SEEK_END);
  AtomicFile target(path);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, bytes)));
  const auto copy = [&](Index begin, Index end) {
    for (; begin < end; begin += kPiece) {
      const auto part =
          std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, end - begin)));
      require(::pread(descriptor_.get(), part.data(), part.size(), begin) ==
                  static_cast<ssize_t>(part.size()),
              "a file in memory ends early");
      target.write_at(begin, part);
    }
  };
  Index end = 0;
  while (true) {
    const Index begin = ::lseek(descriptor_.get(), end, SEEK_DATA);
    if (begin < 0) break;  // none after `end`
    end = ::lseek(descriptor_.get(), begin, SEEK_HOLE);
    copy(begin, end);
  }
  // A file's size is that of what is written.
  if (end < bytes) copy(bytes - 1, bytes);
  target.commit();
  return bytes;
}

}  // namespace megatrain::io::hdf5
