#pragma once
/// @file
/// A root directory with a /proc and a /sys of its own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace megatrain {

class FakeRoot : public ::testing::Test {
 protected:
  FakeRoot()
      : root_(std::filesystem::temp_directory_path() / ("fake_root_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~FakeRoot() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
};

}  // namespace megatrain
