#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "io/text.h"

namespace megatrain::io {

void throw_system_error(std::string_view doing, const std::filesystem::path& path, int error) {
  const std::string message =
      fmt::format("cannot {} {}: {}", doing, quote(path.string()), std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      throw UserError(message + "; free some space or write elsewhere");
    case EFBIG:
      throw UserError(message + "; the file would exceed a size limit (see ulimit -f)");
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EROFS:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      throw UserError(message);
    case EACCES:
    case EPERM:
      throw PermissionError(message);
    default:
      throw SystemError(message);
  }
}

FileDescriptor open_regular_file(const std::filesystem::path& path, int flags, Index& bytes) {
  // O_NONBLOCK: opening a pipe must not wait for its other end; regular files ignore it.
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system_error("open", path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw_system_error("examine", path, errno);
  if (!S_ISREG(status.st_mode))
    throw UserError(fmt::format("{} is not a regular file", quote(path.string())));
  bytes = status.st_size;
  return file;
}

void reserve_disk(const FileDescriptor& file, const std::filesystem::path& path, Index bytes,
                  bool grows) {
  if (bytes <= 0) return;
  while (::fallocate(file.get(), grows ? 0 : FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    throw_system_error(fmt::format("reserve {} for", format_bytes(bytes)), path, errno);
  }
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open_regular_file(path_, O_RDONLY, bytes_)) {}

void InputFile::read(Index offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_.get(), out.data(), out.size(), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_system_error("read", path_, errno);
    }
    if (count == 0)
      throw Error(
          fmt::format("{} ends at byte {}, but had {} bytes when it was opened: it was cut "
                      "while in use",
                      quote(path_.string()), offset, bytes_));
    out = out.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error) throw_system_error("examine", path, error.value());
  return found;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::string read_whole_file(const std::filesystem::path& path, Index limit) {
  const InputFile file(path);
  if (file.bytes() > limit)
    throw UserError(fmt::format("{} has {} bytes; at most {} are read of such a file",
                                quote(path.string()), file.bytes(), limit));
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace megatrain::io
