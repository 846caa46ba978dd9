#pragma once
/// @file
/// Which processors there are for this process, and how they belong together.

#include <sys/types.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace megatrain {

/// The processors in a list as the kernel writes it, "0-3,8"; those before the first thing that is
/// none.
std::vector<int> parse_processor_list(std::string_view text);
/// The other way round; `processors` rise.
std::string processor_list(std::span<const int> processors);

/// The affinity mask, rising: what taskset, a batch system or a cpuset leaves. Empty when the
/// system does not say.
/// @param process  whose; 0: that of the calling thread
std::vector<int> affinity_mask(pid_t process = 0);

/// A core, whose threads in hardware share its units and its path to memory.
struct PhysicalCore {
  int processor = 0;  ///< the first of its hardware threads that may be used
  int node = 0;       ///< of memory; 0 where the system knows of none
};

/// The cores that `processors` belong to, neighbours in memory next to each other. Empty when the
/// system does not say which hardware threads share one, as in some containers.
/// @param root  where /sys is found; tests bring their own
std::vector<PhysicalCore> physical_cores(std::span<const int> processors,
                                         const std::filesystem::path& root = "/");

/// The cores for one of `sharers` processes that may all use the same ones: every core is given to
/// one of them, and neighbours stay together.
std::span<const PhysicalCore> part_of_cores(std::span<const PhysicalCore> cores, int rank,
                                            int sharers);

/// Whether the system lets a thread of this process be pinned to each of `processors`.
bool can_pin(std::span<const int> processors);

/// Bytes of all last-level caches that `processors` use; 0 when the system does not say.
Index last_level_cache(std::span<const int> processors, const std::filesystem::path& root = "/");

}  // namespace megatrain
