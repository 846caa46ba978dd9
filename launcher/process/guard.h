#pragma once
/// @file
/// Sees to it that no rank outlives the program that started it, however that ends.

#include <sys/types.h>

#include "io/file.h"

namespace megatrain::launcher {

/// A small process beside this one that waits for its end and then kills the process groups that
/// are left. A rank itself is ended by the kernel when its parent dies; this reaches what a rank
/// has started. Make it before any thread.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void add(pid_t group);
  void remove(pid_t group);

 private:
  void tell(pid_t word);

  pid_t process_ = -1;
  io::FileDescriptor pipe_;
};

}  // namespace megatrain::launcher
