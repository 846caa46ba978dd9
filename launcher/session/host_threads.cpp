#include "launcher/session/host_threads.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace megatrain::launcher {

namespace {

/// Why workers are not pinned; empty: they can be.
std::string reason_against(const HostCores& cores, int share, std::size_t part, int count) {
  if (cores.own.quota) return cores.own.bound + " bounds time, not cores";
  if (cores.physical.empty()) return "the system hides which hardware threads make a core";
  if (cores.own.count < cores.starter && share < cores.own.count)
    return "several ranks share this one's affinity mask";
  if (static_cast<std::size_t>(count) > part)
    return fmt::format("there {} {} core{} for them", part == 1 ? "is" : "are", part,
                       part == 1 ? "" : "s");
  if (!cores.pinning) return "the system refuses it";
  return "";
}

}  // namespace

std::span<const int> HostThreads::pinned() const {
  return processors.empty() ? std::span<const int>() : std::span(processors).subspan(1);
}

HostCores find_host_cores() {
  const std::vector<int> mask = affinity_mask();
  return {.own = usable_cores(),
          .starter = usable_cores("/", ::getppid()).count,
          .physical = physical_cores(mask),
          .pinning = can_pin(mask)};
}

HostThreads choose_host_threads(const HostCores& cores, Index wanted, DeviceKind kind, int rank,
                                int ranks) {
  HostThreads threads;
  const int own = cores.own.count;
  const int share = share_of_cores(own, cores.starter, ranks);
  const auto physical = static_cast<int>(cores.physical.size());
  if (kind == DeviceKind::cpu) {
    threads.count = wanted > 0 ? static_cast<int>(wanted) : share;
    return threads;
  }
  const int available = physical == 0 ? share : std::min(share, share * physical / own);
  threads.count = wanted > 0 ? static_cast<int>(wanted) : std::max(available - 1, 1);
  if (threads.count == 1) return threads;

  const bool divided = cores.own.count >= cores.starter;
  const std::span<const PhysicalCore> part =
      part_of_cores(cores.physical, divided ? rank : 0, divided ? ranks : 1);
  const std::string reason = reason_against(cores, share, part.size(), threads.count);
  if (!reason.empty()) {
    threads.placement = "not pinned: " + reason;
    return threads;
  }
  // The caller's place, the first one, stays free for it and for the thread that issues.
  for (std::size_t i = 0; i < static_cast<std::size_t>(threads.count); ++i)
    threads.processors.push_back(
        part[i * part.size() / static_cast<std::size_t>(threads.count)].processor);
  // Who gets which does not matter, and a rising list reads best.
  std::ranges::sort(threads.processors.begin() + 1, threads.processors.end());
  const std::span<const int> pinned = threads.pinned();
  threads.placement = fmt::format("{} of them pinned to processor{} {}", pinned.size(),
                                  pinned.size() == 1 ? "" : "s", processor_list(pinned));
  return threads;
}

std::string shortage(const HostThreads& threads, const HostCores& cores, int ranks) {
  // Of one core's share of memory bandwidth four are not yet the memory's.
  constexpr int kEnough = 4;
  if (threads.count >= kEnough) return "";
  const int count = cores.own.count;
  return fmt::format(
      "the GPU will wait for updates on the host, where {} thread{} work{}: {} allows {} core{}{}",
      threads.count, threads.count == 1 ? "" : "s", threads.count == 1 ? "s" : "", cores.own.bound,
      count, count == 1 ? "" : "s", ranks == 1 ? "" : fmt::format(", for {} ranks", ranks));
}

std::string describe(const HostThreads& threads) {
  return fmt::format("{} thread{} on the host{}{}", threads.count, threads.count == 1 ? "" : "s",
                     threads.placement.empty() ? "" : ", ", threads.placement);
}

}  // namespace megatrain::launcher
