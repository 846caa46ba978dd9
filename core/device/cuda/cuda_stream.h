#pragma once
/// @file
/// Streams and events of the CUDA device, as the device makes them.

#include <memory>
#include <string_view>

#include "core/device/cuda/cuda_device.h"

namespace megatrain {

std::unique_ptr<Stream> make_cuda_stream(CudaDevice& device, std::string_view name);
std::unique_ptr<Event> make_cuda_event(const CudaDevice& device);
std::unique_ptr<TimedEvent> make_cuda_timed_event(const CudaDevice& device);

}  // namespace megatrain
