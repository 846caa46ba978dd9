#include "launcher/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

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

[[noreturn]] void refuse(const std::string& folder, std::string_view act, int error) {
  throw UserError(
      fmt::format("--out {} cannot {}: {}", folder, act, std::generic_category().message(error)));
}

}  // namespace

FolderHold::FolderHold(const RunFolder& folder)
    : name_(folder.path.string()), path_(fs::absolute(folder.path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // a slash at the end
  fs::path there = path_;
  while (!io::file_exists(there) && there.has_relative_path()) there = there.parent_path();
  if (there == path_ && !fs::is_directory(there))
    throw UserError(fmt::format("--out {} is a file; name a folder", name_));
  if (!fs::is_directory(there)) refuse(name_, "be made", ENOTDIR);
  if (::access(there.c_str(), W_OK | X_OK) != 0) refuse(name_, "be written", errno);
  lock();
}

FolderHold::~FolderHold() {
  // While it is still locked. Folders that hold something stay.
  for (; !made_.empty(); made_.pop_back()) ::rmdir(made_.back().c_str());
}

void FolderHold::lock() {
  io::FileDescriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 && errno == ENOENT) return;
  if (folder.get() < 0) refuse(name_, "be opened", errno);
  // Where the file system has no locks, the run goes on without.
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw UserError(fmt::format("another run is at work in --out {}", name_));
  // One that was refused may have removed the folder that it had made.
  if (io::is_name_of(path_, folder)) lock_ = std::move(folder);
}

bool FolderHold::make() {
  if (lock_) return false;
  // Another run may make and remove the same folders at the same time.
  constexpr int kMostTries = 100;
  for (int tries = 0; !lock_; ++tries) {
    if (tries == kMostTries) refuse(name_, "be made", ENOENT);
    std::vector<fs::path> missing;  // innermost first
    for (fs::path one = path_; !io::file_exists(one) && one.has_relative_path();
         one = one.parent_path())
      missing.push_back(one);
    for (; !missing.empty(); missing.pop_back()) {
      if (::mkdir(missing.back().c_str(), 0777) == 0)
        made_.push_back(missing.back());
      else if (errno != EEXIST && errno != ENOENT)
        refuse(name_, "be made", errno);
    }
    lock();
  }
  return true;
}

bool RunFolder::holds(const fs::path& other) const { return io::lies_in(other, path); }

void check_run_folder(const RunFolder& folder, bool overwrite, const fs::path& source) {
  const fs::path& path = folder.path;
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

void require_checkpoint_space(const RunFolder& folder, std::int64_t bytes, bool clears) {
  std::optional<Index> available = io::available_disk(folder.checkpoints());
  if (!available) return;  // it will show when writing
  if (clears)
    for (const fs::path& file : files_of(folder)) *available += bytes_in(file);
  else
    for (const fs::path& left : io::CheckpointFolder(folder.checkpoints()).leftovers())
      *available += bytes_in(left);
  if (*available < bytes)
    throw UserError(fmt::format(
        "a checkpoint takes {}, but the disk of {} has {} left: every save would fail. Free some "
        "space, write elsewhere (--out), or save none (--save-every 0)",
        format_bytes(bytes), folder.checkpoints().string(), format_bytes(*available)));
}

bool died_before_saving(const RunFolder& folder) {
  return !io::file_exists(folder.model()) && io::CheckpointFolder(folder.checkpoints()).is_empty();
}

void clear_run_folder(const RunFolder& folder, std::int64_t bytes) {
  require_disk_space(folder, bytes);
  std::error_code error;
  for (const fs::path& file : files_of(folder)) {
    fs::remove_all(file, error);
    if (error) io::throw_system_error("remove", file, error.value());
  }
}

}  // namespace megatrain::launcher
