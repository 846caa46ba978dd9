#pragma once
/// @file
/// Runs a program of ours and tells how it ended.

#include <spawn.h>
#include <sys/wait.h>

#include <string>
#include <vector>

namespace megatrain::testing {

/// Runs arguments[0] with only `environment`, its output discarded.
/// @returns its exit code; -1 when it did not exit by itself
inline int run_program(std::vector<std::string> arguments, std::vector<std::string> environment) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", 1, 0);
  posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", 1, 0);
  pid_t child = 0;
  const int status = posix_spawn(&child, argv.front(), &quiet, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&quiet);
  if (status != 0) return -1;
  int result = 0;
  waitpid(child, &result, 0);
  return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

}  // namespace megatrain::testing
