#pragma once
/// @file
/// All memory that plans run in: one device arena, one pinned arena, and the host store.

#include <span>

#include "core/plan/plan.h"
#include "core/store/host_arena.h"
#include "core/store/host_store.h"

namespace megatrain {

/// Sized for the largest of the plans; a plan's buffers are offsets into it.
class EngineMemory {
 public:
  /// @throws UserError when the device or the host has not the memory
  EngineMemory(std::span<const Plan* const> plans, Device& device, HostStore& store,
               ThreadPool& pool);

  /// Where a buffer of the plan lies. Store buffers: the slab that `role` names.
  [[nodiscard]] std::byte* locate(const Buffer& buffer, Role role) const;

  [[nodiscard]] Index device_bytes() const { return device_ ? device_->bytes() : 0; }
  [[nodiscard]] Index pinned_bytes() const { return pinned_.bytes(); }

 private:
  HostStore& store_;
  std::unique_ptr<DeviceMemory> device_;
  HostArena pinned_;
};

}  // namespace megatrain
