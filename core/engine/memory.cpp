#include "core/engine/memory.h"

#include <algorithm>

namespace megatrain {

EngineMemory::EngineMemory(std::span<const Plan* const> plans, Device& device, HostStore& store,
                           ThreadPool& pool)
    : store_(store) {
  Index device_bytes = 0;
  Index pinned_bytes = 0;
  for (const Plan* plan : plans) {
    device_bytes = std::max(device_bytes, plan->device_bytes);
    pinned_bytes = std::max(pinned_bytes, plan->pinned_bytes);
  }
  device_ = device.allocate(device_bytes);
  pinned_ = HostArena("staging and spill", pinned_bytes, device, pool);
}

std::byte* EngineMemory::locate(const Buffer& buffer, Role role) const {
  switch (buffer.space) {
    case MemorySpace::device:
      return device_->data() + buffer.offset;
    case MemorySpace::pinned:
      return pinned_.data() + buffer.offset;
    case MemorySpace::store:
      return role == Role::host_weights ? store_.weights(buffer.unit)
                                        : store_.gradient(buffer.unit);
  }
  return nullptr;
}

}  // namespace megatrain
