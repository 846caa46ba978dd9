#pragma once
/// @file
/// The device that the options ask for, with its kernels and how much memory there is.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/ops/ops.h"
#include "core/plan/planner.h"
#include "core/store/host_store.h"
#include "launcher/options/run_options.h"
#include "launcher/session/host_threads.h"

namespace megatrain::launcher {

/// A process's part of the machine that it shares with others of the same run.
struct NodeShare {
  Index ranks = 1;       ///< of the run on this machine
  Index rank = 0;        ///< this one among them: its GPU
  Slicing slicing = {};  ///< what it holds of the model
};

struct Machine {
  DeviceKind kind = DeviceKind::cpu;
  DType compute = DType::f32;
  MasterFormat master = MasterFormat::fp32;
  DType moments = DType::f32;
  NodeShare share;
  HostThreads threads;
  std::string name;
  std::string numerics;            ///< empty: the device is not here
  double peak_flops = 0;           ///< of the compute type, by the data sheet; 0: not known
  Index device_memory = 0;         ///< the budget
  Index device_reserve = 0;        ///< of it, outside the plan
  Index host_memory = 0;           ///< for the store and pinned memory; 0: not known
  std::vector<std::string> notes;  ///< what was assumed or chosen, and why
  // In this order: kernels must not outlive their device.
  std::unique_ptr<Device> device;  ///< null: planned for, but not here
  std::optional<ops::Ops> ops;
};

/// Whether the device must be there, or a plan for it is enough.
enum class Presence : std::uint8_t { required, planned };

/// @param contents  what the host store will hold: the CPU device's memory is what that leaves
/// @throws UserError when the device, its compute type or its memory is not to be had
Machine open_machine(const MachineOptions& options, const Model& model, Presence presence,
                     StoreContents contents = StoreContents::training, const NodeShare& share = {});

/// Measures a GPU's reserve and memory again: libraries that were opened since have taken of it.
void measure_again(Machine& machine, const MachineOptions& options);

/// The least --host-memory under which a plan of these bytes fits: the CPU device takes its own
/// memory from it too.
Index sufficient_host_memory(const MachineOptions& options, const Machine& machine,
                             const Model& model, const PlanBytes& plan, StoreContents contents);

/// The attention kernels for this model: the fastest that serve it.
/// @param why  receives the reason when it is not the fastest the device kind knows
ops::AttentionBackend choose_attention(const Machine& machine, const Model& model, Index sequence,
                                       bool deterministic, std::string& why);

/// Refuses kernels that do not serve this model on this device; where the device is not here, the
/// run will tell. @throws UserError with the reason
void require_attention(const Machine& machine, const Model& model, Index sequence,
                       ops::AttentionBackend backend);

}  // namespace megatrain::launcher
