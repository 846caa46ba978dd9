#pragma once
/// @file
/// Programs that tests start, watch and end.

#include <sys/types.h>

#include <string>
#include <vector>

#include "parallel/rendezvous/variables.h"

namespace megatrain::parallel {

/// Paths of the programs under test.
const std::string& rank_program();
const std::string& megatrain_program();

/// A started program. Its output goes to a file that only grows, so that it can be watched.
class Started {
 public:
  /// @param more  variables beside PATH; nothing else of this process's environment is handed on
  explicit Started(std::vector<std::string> command, const Environment& more = {});
  /// Kills it, if it still runs.
  ~Started();
  Started(Started&& other) noexcept;
  Started& operator=(Started&&) = delete;

  [[nodiscard]] pid_t process() const { return process_; }
  void signal(int number) const;
  /// What it has written so far, both streams.
  [[nodiscard]] std::string output() const;
  /// Waits until the output has `words` `times` times. @returns whether it came to that
  [[nodiscard]] bool says(const std::string& words, int times = 1) const;
  /// Waits for its end. @returns its exit code; 128 + signal when one ended it
  int wait();

 private:
  pid_t process_ = -1;
  std::string file_;
};

/// What torchrun sets for a rank on this machine, with the meeting place at `port`.
Environment torchrun(int rank, int world, std::uint16_t port);
/// The first `count` ranks of a world, by torchrun's variables.
std::vector<Started> start_ranks(int count, int world, const std::vector<std::string>& command);

/// The newest process that runs and whose command line begins so and has that in it; -1: none.
pid_t newest_process(const std::string& begins, const std::string& has);
/// Whether a process with that number runs (a zombie does not).
bool runs(pid_t process);
/// A port that was free a moment ago.
std::uint16_t free_port();

}  // namespace megatrain::parallel
