#include "io/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

/// Absolute, links resolved as far as it exists, without a trailing slash.
fs::path resolved(const fs::path& path) {
  std::error_code ignored;
  const fs::path full = fs::weakly_canonical(fs::absolute(path), ignored).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

}  // namespace

bool is_name_of(const fs::path& path, const FileDescriptor& opened) {
  struct stat held{};
  struct stat named{};
  return ::fstat(opened.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) throw_system_error("read the folder", folder, error.value());
  return names;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path inner = resolved(path);
  const fs::path outer = resolved(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

std::optional<Index> available_disk(const fs::path& folder) {
  fs::path there = fs::absolute(folder);
  while (!file_exists(there) && there.has_relative_path()) there = there.parent_path();
  std::error_code error;
  const auto available = static_cast<Index>(fs::space(there, error).available);
  if (error || available < 0) return std::nullopt;
  return available;
}

}  // namespace megatrain::io
