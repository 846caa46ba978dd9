#pragma once
/// @file
/// How many processor cores this process may use.

#include <filesystem>
#include <string>

namespace megatrain {

struct Cores {
  int count = 1;
  std::string
      bound;  ///< what sets it: "the processor", "the affinity mask", "the CPU quota of ..."
};

/// The affinity mask of the calling thread, further limited by the CPU quota of every cgroup (v2
/// and v1) above this process; parts of a core count as one.
/// @param root  where /proc and /sys are found; tests bring their own
Cores usable_cores(const std::filesystem::path& root = "/");

/// The number alone.
inline int available_cores() { return usable_cores().count; }

}  // namespace megatrain
