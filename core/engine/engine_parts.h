#pragma once
/// @file
/// What the executors of an engine share.

#include <array>
#include <memory>

#include "core/engine/host_queue.h"
#include "core/engine/memory.h"
#include "core/engine/step_groups.h"
#include "core/model/model.h"
#include "core/ops/ops.h"
#include "core/plan/plan.h"

namespace megatrain {

/// The device streams, shared by all plans of an engine.
class DeviceStreams {
 public:
  explicit DeviceStreams(Device& device);
  [[nodiscard]] Stream& of(StreamId stream) const {
    return *streams_[static_cast<std::size_t>(stream)];
  }
  void synchronize();

 private:
  std::array<std::unique_ptr<Stream>, kDeviceStreams> streams_;
};

/// What executors work with; none of it is owned.
struct EngineParts {
  Device& device;
  const ops::Ops& ops;
  const Model& model;
  HostStore& store;
  EngineMemory& memory;
  DeviceStreams& streams;
  HostQueue& updates;
  HostQueue& snapshots;
  ThreadPool& update_pool;
  StepGroups& groups;
};

}  // namespace megatrain
