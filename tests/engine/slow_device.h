#pragma once
/// @file
/// The CPU device with slow copies: what does not wait for a copy reads what was there before.

#include "core/device/device.h"

namespace megatrain::testing {

/// Streams other than "compute" sleep `seconds` before every copy.
std::unique_ptr<Device> make_slow_device(int threads, double seconds);

}  // namespace megatrain::testing
