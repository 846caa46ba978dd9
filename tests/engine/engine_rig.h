#pragma once
/// @file
/// A small model, its store and its engine, and what a test compares.

#include <atomic>
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
  std::vector<std::byte> handed_over;  ///< what readers of each step got
  bool operator==(const Snapshot&) const = default;
};

struct RigOptions {
  int device_threads = 1;
  int update_threads = 1;
  bool poison = false;
  /// Every copy of the fetch, offload and spill streams first sleeps this long.
  double slow_copies = 0;
  /// Every update of a unit first sleeps this long.
  double slow_updates = 0;
  /// run_unchecked: the first step's reader begins when the second step does, and then sleeps this
  /// long before each unit.
  double slow_reader = 0;
  DeviceKind device = DeviceKind::cpu;
  int ordinal = 0;  ///< of the GPU
};

/// Copies every bit that it is handed.
class CopyingReader : public StateReader {
 public:
  /// @param seconds  sleeps this long before it copies a unit
  CopyingReader(const Model& model, const HostStore& store, DType wire, double seconds = 0)
      : model_(model), store_(store), wire_(wire), seconds_(seconds) {}
  void unit(Index unit) noexcept override;
  /// From here to let_go() it stays in the unit that it is handed.
  void hold() { held_ = true; }
  void let_go();
  /// Units that it is done with.
  [[nodiscard]] Index units() const { return units_; }
  /// As Snapshot::bytes; for when the hand-over is finished.
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  const Model& model_;
  const HostStore& store_;
  DType wire_;
  double seconds_;
  std::atomic<bool> held_ = false;
  std::atomic<Index> units_ = 0;
  std::vector<std::byte> bytes_;
};

class Rig {
 public:
  /// @param groups  the ranks that the choices are for
  /// @param share   this rank's part of every step
  Rig(const ModelConfig& config, const Choices& choices, const RigOptions& options = {},
      StepGroups groups = StepGroups::alone(), const DataShare& share = {});
  ~Rig();

  /// Steps on made-up tokens; a pure function of the step's number and the step's shape.
  StepResult step(Index number, float scale_factor = 1, Trace* trace = nullptr);
  Snapshot run(Index steps);
  Snapshot snapshot();
  [[nodiscard]] std::unique_ptr<CopyingReader> reader(double seconds = 0) const;
  [[nodiscard]] Batch batch(Index number) const;

  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Ops> ops;
  Model model;
  ThreadPool pool;
  std::unique_ptr<HostStore> store;
  std::unique_ptr<Engine> engine;
  Choices choices;
  DataShare share;
  UpdateRule rule;
};

/// Steps of a plan that the checker may not have seen, on a model and store like a rig's: what a
/// broken plan really does. The state before each step is handed to a reader.
Snapshot run_unchecked(const ModelConfig& config, const Plan& plan, Index steps,
                       const RigOptions& options = {});

/// The device of a rig: slow copies are the CPU device's alone.
std::unique_ptr<Device> make_rig_device(const RigOptions& options);

}  // namespace megatrain::testing
