#pragma once
/// @file
/// Folders, files and expected errors for the tests of io.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/types.h"

namespace megatrain::io {

/// A fresh folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megatrain-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw Error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path put_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

inline std::string get_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
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
