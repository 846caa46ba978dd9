#pragma once
/// @file
/// Names for profilers.

namespace megatrain {

/// Marks a host range for profilers (NVTX) while it lives; device work enqueued inside belongs to
/// it. Costs nothing without a profiler, and is nothing in a build without CUDA.
class DeviceRange {
 public:
  explicit DeviceRange(const char* name);
  ~DeviceRange();
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;
};

}  // namespace megatrain
