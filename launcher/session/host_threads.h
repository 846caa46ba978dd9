#pragma once
/// @file
/// The threads of the host's loops (updates, first touch, loading), and the cores they run on.

#include <span>
#include <string>
#include <vector>

#include "core/base/cores.h"
#include "core/base/processors.h"
#include "core/base/types.h"
#include "core/device/device.h"

namespace megatrain::launcher {

/// What a process finds.
struct HostCores {
  Cores own;                           ///< that it may use
  int starter = 1;                     ///< that the process which started it may use
  std::vector<PhysicalCore> physical;  ///< of its affinity mask; empty: not known
  bool pinning = true;                 ///< the system lets threads be pinned
};
HostCores find_host_cores();

struct HostThreads {
  int count = 1;                ///< that work in a loop, the caller's included
  std::vector<int> processors;  ///< that ThreadPool pins its workers to; empty: to none
  std::string placement;  ///< in words: "14 of them pinned to processors 1-14", or why none is

  /// Those of `processors` that a worker is pinned to, which the caller is not.
  [[nodiscard]] std::span<const int> pinned() const;
};

/// Beside a GPU, one thread a physical core, less one that is left to the thread which issues the
/// step, and workers pinned to cores of their own. The update of a large model is bound by memory,
/// of which each node has its own, so they spread over all nodes that this process may use.
///
/// The cores are divided among the ranks of a machine, unless their starter did. They are not
/// pinned where that would be a guess: where a quota bounds time and not cores, where ranks share a
/// part of the machine that this one does not know to divide, where the system hides which hardware
/// threads make a core, and on the CPU device, whose own threads need the same cores.
/// @param wanted  --threads; 0: as many as make sense
/// @param ranks   of the run on this machine, of which this is number `rank`
HostThreads choose_host_threads(const HostCores& cores, Index wanted, DeviceKind kind, int rank,
                                int ranks);
/// A warning where the host's updates will be what a GPU waits for, because this process may use so
/// few of the machine's cores, and what keeps it to them; empty: it may use enough.
std::string shortage(const HostThreads& threads, const HostCores& cores, int ranks);
/// As text for the banner: "15 threads on the host, 14 of them pinned to processors 1-14".
std::string describe(const HostThreads& threads);

}  // namespace megatrain::launcher
