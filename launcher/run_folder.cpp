#include "launcher/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "core/base/types.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/folder.h"

namespace megatrain::launcher {

namespace fs = std::filesystem;

namespace {

std::array<fs::path, 5> files_of(const RunFolder& folder) {
  return {folder.metrics(), folder.config(), folder.key(), folder.model(), folder.checkpoints()};
}

/// Bytes of a file, or of the files in a folder; 0 where there is none.
Index bytes_in(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return static_cast<Index>(fs::file_size(path, ignored));
  Index bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path, ignored))
    if (entry.is_regular_file(ignored)) bytes += static_cast<Index>(entry.file_size(ignored));
  return bytes;
}

}  // namespace

bool RunFolder::holds(const fs::path& other) const { return io::lies_in(other, path); }

void check_run_folder(const RunFolder& folder, bool overwrite, const fs::path& source) {
  const fs::path& path = folder.path;
  if (io::file_exists(path) && !fs::is_directory(path))
    throw UserError(fmt::format("--out {} is a file; name a folder", path.string()));
  for (const fs::path& file : files_of(folder)) {
    if (!io::file_exists(file)) continue;
    if (!overwrite)
      throw UserError(fmt::format(
          "--out {} holds an earlier run ({}). Name another folder, or give --overwrite to replace "
          "that run",
          path.string(), file.filename().string()));
    if (!source.empty() && folder.holds(source))
      throw UserError(
          fmt::format("--overwrite would remove what the run starts from, {}: name another --out",
                      source.string()));
  }
}

void require_disk_space(const RunFolder& folder, std::int64_t bytes) {
  std::optional<Index> available = io::available_disk(folder.path);
  if (!available) return;  // it will show when writing
  for (const fs::path& file : files_of(folder)) *available += bytes_in(file);
  if (*available < bytes)
    throw UserError(fmt::format(
        "the trained model takes {}, but the disk of --out {} has {} left; free some space or "
        "write elsewhere",
        format_bytes(bytes), folder.path.string(), format_bytes(*available)));
}

bool died_before_saving(const RunFolder& folder) {
  return !io::file_exists(folder.model()) && io::CheckpointFolder(folder.checkpoints()).is_empty();
}

io::FileDescriptor begin_run_folder(const RunFolder& folder, std::int64_t bytes, bool keeps) {
  require_disk_space(folder, bytes);
  std::error_code error;
  fs::create_directories(folder.path, error);
  if (error) io::throw_system_error("create", folder.path, error.value());
  io::FileDescriptor lock(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) io::throw_system_error("open", folder.path, errno);
  // Where the file system has no locks, the run goes on without.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw UserError(fmt::format("another run is at work in --out {}", folder.path.string()));
  if (keeps) return lock;
  for (const fs::path& file : files_of(folder)) {
    fs::remove_all(file, error);
    if (error) io::throw_system_error("remove", file, error.value());
  }
  return lock;
}

}  // namespace megatrain::launcher
