#pragma once
/// @file
/// One exact-size range of host memory that a device can copy from and to.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/device/device.h"

namespace megatrain {

struct HostArenaOptions {
  /// Byte offsets that no copy crosses. Registration is cut at some of them (page-aligned ones,
  /// about 16 GiB apart), because a copy must lie in one registered range. Empty: one range.
  std::span<const Index> cuts = {};
  /// Called on the constructing thread with the bytes newly touched, about every GiB.
  std::function<void(Index)> touched = {};
};

/// What making an arena took.
struct ArenaSeconds {
  double touch = 0;         ///< its pages, by all threads of the pool
  double registration = 0;  ///< with the device

  ArenaSeconds& operator+=(const ArenaSeconds& other);
  /// Both, over the touch that memory costs anyway; 1 where nothing was touched.
  [[nodiscard]] double ratio() const { return touch > 0 ? (touch + registration) / touch : 1; }
};

/// Where the registrations of an arena end: at its end, and before that at the first of `cuts`
/// (rising) that is a whole number of pages and at least 16 GiB after the last such end.
std::vector<Index> registration_ends(Index bytes, std::span<const Index> cuts, Index page);

/// Zeroed memory: mapped at exactly the size asked for (rounded up to a page), on huge pages where
/// the system gives them, touched by all threads of a pool so that it is there before it is used
/// (and spread over the NUMA nodes they run on), then registered with the device, which must
/// outlive it. Movable; the data stay in place.
class HostArena {
 public:
  HostArena() = default;
  /// @param name  for messages and /proc/PID/maps
  /// @throws UserError before mapping anything when the machine or a cgroup has not the memory
  HostArena(std::string name, Index bytes, Device& device, ThreadPool& pool,
            const HostArenaOptions& options = {});

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Index bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return mapping_.get(); }  ///< nullptr when empty
  [[nodiscard]] const ArenaSeconds& seconds() const { return seconds_; }

 private:
  struct Unmap {
    Index bytes;
    void operator()(std::byte* data) const;
  };

  void map();
  void touch(ThreadPool& pool, const std::function<void(Index)>& touched);
  void register_with(Device& device, std::span<const Index> cuts);

  std::string name_;
  Index bytes_ = 0;
  ArenaSeconds seconds_;
  std::unique_ptr<std::byte, Unmap> mapping_;
  // After the mapping, so that they end before it does.
  std::vector<std::unique_ptr<HostRegistration>> registrations_;
};

}  // namespace megatrain
