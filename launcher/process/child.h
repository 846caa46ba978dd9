#pragma once
/// @file
/// A started program in a process group of its own.

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"
#include "launcher/process/guard.h"
#include "parallel/rendezvous/variables.h"

namespace megatrain::launcher {

/// How a program ended.
struct Ending {
  int code = 0;    ///< what it returned
  int signal = 0;  ///< what ended it; 0: it returned
  /// As shells count: 128 + signal.
  [[nodiscard]] int exit_code() const { return signal != 0 ? 128 + signal : code; }
};

/// "exit code 3", "signal 9 (Killed)".
std::string describe(const Ending& ending);

/// The file that would run under this name: the name itself if it has a slash, otherwise the first
/// in the folders of PATH. @throws UserError when there is none that may be run
std::string find_program(const std::string& name, const parallel::Environment& environment);

class Child {
 public:
  /// Starts `program` with its output in two pipes, no input, and no signals blocked but `blocked`.
  /// The kernel kills it when the calling thread ends.
  /// @param arguments  the first is the name that the program sees
  /// @throws UserError naming the program when it cannot be run
  Child(const std::string& program, const std::vector<std::string>& arguments,
        const parallel::Environment& environment, const sigset_t& blocked, Guard& guard);
  /// Kills what is left of the group.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] int out() const { return out_.get(); }
  [[nodiscard]] int err() const { return err_.get(); }
  void close_out() { out_ = io::FileDescriptor(); }
  void close_err() { err_ = io::FileDescriptor(); }
  /// To the whole group, while the program runs.
  void signal(int number) const;
  /// Its ending, once, when it has ended.
  std::optional<Ending> ended();
  [[nodiscard]] bool running() const { return running_; }

 private:
  Guard& guard_;
  io::FileDescriptor out_, err_;
  pid_t process_ = -1;
  bool running_ = true;
};

}  // namespace megatrain::launcher
