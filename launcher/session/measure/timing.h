#pragma once
/// @file
/// What measurements have in common: a clock, calls repeated until they last, memory to work on.

#include <functional>
#include <memory>

#include "core/device/device.h"

namespace megatrain::launcher {

double seconds_now();

/// Seconds that one call takes: the median of five rounds of as many calls as it takes to keep busy
/// for `least_seconds` in all, so that what else the machine does for a moment does not count.
/// @param wait  returns when the work that `enqueue` started is done
double seconds_a_call(const std::function<void()>& enqueue, const std::function<void()>& wait,
                      double least_seconds);

/// Device memory in pieces, filled with small numbers that are not all alike: zeros would make
/// processors look faster than they are.
class Scratch {
 public:
  Scratch(Device& device, Stream& stream, Index bytes);
  /// Bytes that pieces of these sizes need.
  static Index room(std::initializer_list<Index> pieces);
  /// The next piece; nullptr when it has no bytes.
  std::byte* take(Index bytes);

 private:
  std::unique_ptr<DeviceMemory> memory_;
  Index taken_ = 0;
};

}  // namespace megatrain::launcher
