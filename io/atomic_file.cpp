#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "io/text.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

fs::path temporary_of(const fs::path& path) {
  return fs::path(path.string() + std::string(kAsideSuffix));
}

/// FOLDER/ and FOLDER are the same; only the latter has a name to add a suffix to.
fs::path without_trailing_slash(fs::path path) {
  path = path.lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

/// As many as the system follows.
constexpr int kMostLinks = 40;

/// What a name that a person gave stands for.
struct Destination {
  fs::path path;
  bool replaceable = true;  ///< by another file; else it is written into
};

Destination destination_of(const fs::path& name) {
  std::error_code error;
  if (fs::is_other(fs::status(name, error))) return {name, false};  // pipes, devices
  fs::path path = name;
  for (int links = 0; fs::is_symlink(path, error); ++links) {
    if (links == kMostLinks) throw_system_error("follow", name, ELOOP);
    // /dev/stdout: an open file of a process, whatever its name is now.
    if (path.string().starts_with("/proc/")) return {name, false};
    path = parent_of(path) / fs::read_symlink(path);
  }
  return {path};
}

void write_into(const fs::path& path, std::string_view content) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file) throw_system_error("open", path, errno);
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error("write", path, errno);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (!file.close()) throw_system_error("close", path, errno);
}

void remove_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) throw_system_error("remove", folder, error.value());
}

}  // namespace

AtomicFile::AtomicFile(fs::path path, Role role)
    : path_(std::move(path)), temporary_(temporary_of(path_)), role_(role) {
  const int create = role_ == Role::maker ? O_CREAT | O_TRUNC : 0;
  descriptor_ =
      FileDescriptor(::open(temporary_.c_str(), O_WRONLY | create | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (descriptor_.get() < 0)
    throw_system_error(role_ == Role::maker ? "create" : "open", temporary_, errno);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && role_ == Role::maker) ::unlink(temporary_.c_str());
}

void AtomicFile::reserve(Index bytes) { reserve_disk(descriptor_, path_, bytes, /*grows=*/true); }

void AtomicFile::write_at(Index offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t count = ::pwrite(descriptor_.get(), data.data(), data.size(), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_system_error("write", path_, errno);
    }
    data = data.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void AtomicFile::append(std::span<const std::byte> data) {
  write_at(end_, data);
  end_ += static_cast<Index>(data.size());
}

void AtomicFile::commit() {
  if (::fsync(descriptor_.get()) != 0) throw_system_error("sync", path_, errno);
  if (!descriptor_.close()) throw_system_error("close", path_, errno);
  if (role_ == Role::joiner) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_system_error("publish", path_, errno);
  committed_ = true;
  sync_folder(parent_of(path_));
}

void write_file(const fs::path& path, std::string_view content) {
  const Destination destination = destination_of(path);
  if (!destination.replaceable) return write_into(destination.path, content);
  AtomicFile file(destination.path);
  file.append(content);
  file.commit();
}

void check_writable(const fs::path& path) {
  const Destination destination = destination_of(path);
  if (fs::exists(destination.path) && ::access(destination.path.c_str(), W_OK) != 0)
    throw_system_error("write", destination.path, errno);
  // Nothing but trying tells of read-only disks, rights and quotas.
  if (destination.replaceable) const AtomicFile file(destination.path);
}

fs::path AtomicFolder::aside(fs::path folder) {
  return temporary_of(without_trailing_slash(std::move(folder)));
}

AtomicFolder::AtomicFolder(fs::path folder, bool replace)
    : folder_(without_trailing_slash(std::move(folder))),
      temporary_(aside(folder_)),
      replace_(replace) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder_, error);
  if (fs::exists(status)) {
    if (!replace_)
      throw UserError(
          fmt::format("{} exists; remove it or name another folder", quote(folder_.string())));
    if (!fs::is_directory(status))
      throw UserError(fmt::format("{} is in the way: a folder is to be written there",
                                  quote(folder_.string())));
  }
  remove_folder(temporary_);
  fs::create_directories(temporary_, error);
  if (error) throw_system_error("create", temporary_, error.value());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  sync_folder(temporary_);
  std::error_code ignored;
  const bool exists = fs::exists(fs::symlink_status(folder_, ignored));
  if (exists && !replace_)
    throw UserError(fmt::format("{} has appeared meanwhile", quote(folder_.string())));
  // Swapping two folders is one step for every reader; the old one then goes by its new name.
  const bool swapped = exists && ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD,
                                             folder_.c_str(), RENAME_EXCHANGE) == 0;
  if (!swapped) {
    const fs::path old(folder_.string() + std::string(kReplacedSuffix));
    if (exists) {
      remove_folder(old);
      if (::rename(folder_.c_str(), old.c_str()) != 0)
        throw_system_error("move aside", folder_, errno);
    }
    if (::rename(temporary_.c_str(), folder_.c_str()) != 0)
      throw_system_error("publish", folder_, errno);
    committed_ = true;
    if (exists) remove_folder(old);
  }
  committed_ = true;
  sync_folder(parent_of(folder_));
  if (swapped) remove_folder(temporary_);
}

void sync_folder(const fs::path& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) throw_system_error("open", folder, errno);
  // Some network file systems cannot sync folders and say EINVAL; their renames are synchronous.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) throw_system_error("sync", folder, errno);
}

}  // namespace megatrain::io
