#pragma once
/// @file
/// Folders, files and expected errors for the tests of io.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/types.h"
#include "tests/temporary_folder.h"

namespace megatrain::io {

/// Files of this process cannot grow beyond a size while it lives: a full disk, for its tests.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

inline std::filesystem::path put_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

inline std::string get_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The content of every file of a folder, by name.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = get_file(entry.path());
  return files;
}

/// The bytes of a trivially copyable value.
template <typename T>
std::string bytes_of_value(const T& value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// Runs `act` and expects a UserError whose text holds all `parts`.
template <typename Act>
void expect_user_error(Act act, std::initializer_list<std::string_view> parts) {
  try {
    act();
    ADD_FAILURE() << "no error; expected one that says '" << *parts.begin() << "'";
  } catch (const UserError& error) {
    for (const std::string_view part : parts)
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
          << "'" << error.what() << "' does not say '" << part << "'";
  }
}

}  // namespace megatrain::io
