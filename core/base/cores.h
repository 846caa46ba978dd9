#pragma once
/// @file
/// How many processor cores this process may use.

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace megatrain {

struct Cores {
  int count = 1;
  std::string
      bound;  ///< what sets it: "the processor", "the affinity mask", "the CPU quota of ..."
  bool quota = false;  ///< time is bound, and not which cores
};

/// The affinity mask of the calling thread, further limited by the CPU quota of every cgroup (v2
/// and v1) above this process; parts of a core count as one.
/// @param root     where /proc and /sys are found; tests bring their own
/// @param process  whose mask counts instead; 0: the caller's
Cores usable_cores(const std::filesystem::path& root = "/", pid_t process = 0);

/// The cores for one of `sharers` processes that one starter started. A starter that binds each to
/// cores of its own, as srun and mpirun do, may itself use more than one of them: then these are
/// not divided again.
/// @param own      cores that this process may use
/// @param starter  cores that its starter may use
int share_of_cores(int own, int starter, int sharers);

/// The number alone.
inline int available_cores() { return usable_cores().count; }

}  // namespace megatrain
