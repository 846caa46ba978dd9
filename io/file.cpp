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

FileDescriptor::~FileDescriptor() { close(); }

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

bool FileDescriptor::close() {
  if (descriptor_ < 0) return true;
  return ::close(std::exchange(descriptor_, -1)) == 0;
}

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

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it.
  descriptor_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor_.get() < 0) throw_system_error("open", path_, errno);
  struct stat status{};
  if (::fstat(descriptor_.get(), &status) != 0) throw_system_error("examine", path_, errno);
  if (!S_ISREG(status.st_mode))
    throw UserError(fmt::format("{} is not a regular file", quote(path_.string())));
  bytes_ = status.st_size;
}

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
