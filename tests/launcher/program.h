#pragma once
/// @file
/// Runs the built program as a user does.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace megatrain::launcher {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when one ended it
  std::string out, err;
};

/// A started program. Its output is read by wait() only, so it must fit the pipes (64 KiB each).
class Program {
 public:
  /// @param file_limit  most bytes of a file that it may write; 0: no limit
  explicit Program(const std::vector<std::string>& arguments, Index file_limit = 0);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  Outcome wait();

 private:
  pid_t process_ = -1;
  int out_ = -1, err_ = -1;
};

/// The program's path, for a shell.
std::string program_path();

Outcome run_program(const std::vector<std::string>& arguments, Index file_limit = 0);

std::string read_file(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);
/// Lines, each with its end.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace megatrain::launcher
