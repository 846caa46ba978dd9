#pragma once
/// @file
/// What measurements have in common: a clock, calls repeated until they last, memory to work on.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"

namespace megatrain::launcher {

double seconds_now();

/// A call that is measured.
struct Repeated {
  std::function<void()> enqueue;
  double least_seconds = 0;  ///< for which it is kept up, all repetitions together
};

/// Seconds that each of the calls takes: the median of rounds, in which all have their turn, so
/// that what else the machine does for a while does not fall on one of them alone.
/// @param wait  returns when the work that a call started is done
std::vector<double> seconds_of_calls(std::span<const Repeated> calls,
                                     const std::function<void()>& wait);
/// The same of one call.
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
