#include "core/engine/engine_parts.h"

#include <string_view>

namespace megatrain {

DeviceStreams::DeviceStreams(Device& device) {
  static constexpr std::array<std::string_view, kDeviceStreams> kNames = {
      "compute", "host to device", "device to host", "spill", "gather", "scatter"};
  for (std::size_t s = 0; s < kDeviceStreams; ++s) streams_[s] = device.make_stream(kNames[s]);
}

void DeviceStreams::synchronize() {
  for (const auto& stream : streams_) stream->synchronize();
}

}  // namespace megatrain
