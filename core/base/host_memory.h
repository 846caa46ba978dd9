#pragma once
/// @file
/// How much host memory this process may still take.

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/types.h"

namespace megatrain {

struct HostMemory {
  Index available = 0;  ///< bytes
  std::string bound;    ///< what sets it: "MemAvailable" or "the memory limit of cgroup /NAME"
};

/// The least of the kernel's MemAvailable and what each memory cgroup above this process (v2 and
/// v1) has left, counting its page cache as free.
/// @param root  where /proc and /sys are found; tests bring their own
/// @throws Error when /proc/meminfo cannot be read
HostMemory available_host_memory(const std::filesystem::path& root = "/");

/// Refuses a request that would not fit, before it is made.
/// @param what  subject of the message ("the training state", ...)
/// @throws UserError saying what is needed, what is there and what to do
void require_host_memory(std::string_view what, Index bytes);

}  // namespace megatrain
