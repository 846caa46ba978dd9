#pragma once
/// @file
/// How fast memory is copied between host and device: alone, both ways at once, beside the host's
/// updates, and by all GPUs of a machine together.

#include <functional>
#include <memory>

#include "core/base/thread_pool.h"
#include "core/device/device.h"
#include "core/store/host_arena.h"

namespace megatrain::launcher {

/// Pinned and device memory of the size of a large unit, a half for each direction.
class Copies {
 public:
  Copies(Device& device, ThreadPool& pool);

  struct Alone {
    double to_device = 0, to_host = 0;  ///< bytes/s, one at a time
    double both_ways = 0;               ///< of both together
  };
  [[nodiscard]] Alone alone(double least_seconds);

  struct Beside {
    double to_device = 0, to_host = 0;  ///< bytes/s, all at once
    double calls = 0;                   ///< of the work, a second
  };
  /// Copies both ways for so many seconds, in which `work` is called again and again.
  [[nodiscard]] Beside beside(const std::function<void()>& work, double seconds);

  void enqueue_to_device();
  void enqueue_to_host();
  void wait();
  [[nodiscard]] Index bytes() const { return bytes_; }

 private:
  Index bytes_;  ///< a copy
  std::unique_ptr<Stream> down_, up_;
  std::unique_ptr<DeviceMemory> memory_;
  HostArena host_;
};

/// What the first `gpus` GPUs of this machine copy together, bytes/s in the slower direction.
double measure_host_memory(int gpus, double seconds);

}  // namespace megatrain::launcher
