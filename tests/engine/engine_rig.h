#pragma once
/// @file
/// A small model, its store and its engine, and what a test compares.

#include <memory>
#include <vector>

#include "core/engine/engine.h"
#include "core/train/batch.h"

namespace megatrain::testing {

/// Every bit of persistent state: weights, remainders and moments of all units.
struct Snapshot {
  std::vector<std::byte> bytes;
  std::vector<double> losses;  ///< loss sum of each step
  std::vector<double> norms;
  bool operator==(const Snapshot&) const = default;
};

struct RigOptions {
  int device_threads = 1;
  int update_threads = 1;
  bool poison = false;
  /// Every copy of the fetch, offload and spill streams first sleeps this long.
  double slow_copies = 0;
  DeviceKind device = DeviceKind::cpu;
};

class Rig {
 public:
  Rig(const ModelConfig& config, const Choices& choices, const RigOptions& options = {});
  ~Rig();

  /// Steps on made-up tokens; a pure function of the step's number and the step's shape.
  StepResult step(Index number, float scale_factor = 1, Trace* trace = nullptr);
  Snapshot run(Index steps);
  Snapshot snapshot();
  [[nodiscard]] Batch batch(Index number) const;

  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Ops> ops;
  Model model;
  ThreadPool pool;
  std::unique_ptr<HostStore> store;
  std::unique_ptr<Engine> engine;
  Choices choices;
  UpdateRule rule;
};

/// Steps of a plan that the checker may not have seen, on a model and store like a rig's: what a
/// broken plan really does.
Snapshot run_unchecked(const ModelConfig& config, const Plan& plan, Index steps,
                       const RigOptions& options = {});

/// The device of a rig: slow copies are the CPU device's alone.
std::unique_ptr<Device> make_rig_device(const RigOptions& options);

}  // namespace megatrain::testing
