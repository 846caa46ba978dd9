#pragma once
/// @file
/// A model on a device: runs steps, applies updates just in time, evaluates and gives logits.

#include <memory>
#include <optional>

#include "core/engine/executor.h"

namespace megatrain {

/// The plans of an engine. The arenas are sized for the largest.
struct EnginePlans {
  std::optional<Plan> train = {};
  std::optional<Plan> evaluate = {};
  std::optional<Plan> generate = {};
};

/// How the gradients of a step become an update.
struct UpdateRule {
  AdamWOptions adamw;
  double lr = 0;
  double max_norm = 0;  ///< global-norm clipping; <= 0: none
};

/// What a training step found.
struct StepResult {
  double loss_sum = 0;  ///< over the step's valid tokens, fp64, in token order
  ClipDecision decision;
};

class Engine {
 public:
  /// Checks every plan, allocates everything, and never allocates again.
  /// @param groups  the ranks that the plans are for; every rank makes the same calls of its engine
  ///                in the same order
  /// @throws UserError when memory is short or an attention backend refuses
  Engine(Device& device, const ops::Ops& ops, const Model& model, HostStore& store,
         ThreadPool& update_pool, EnginePlans plans, StepGroups groups = StepGroups::alone());
  /// Waits for what was begun: pending updates are not applied, states asked for not handed over.
  ~Engine();

  /// Forward and backward of a step. The update it calls for stays pending: the next step applies
  /// it unit by unit just before it needs them. A step whose norm is not finite leaves every
  /// state as it is.
  StepResult train_step(const StepInputs& inputs, const UpdateRule& rule, Trace* trace = nullptr);
  /// Applies the pending update. Afterwards the store is the state after the last step. Readers
  /// may still be at work: the store may be read, but not written before finish_snapshot().
  void flush();
  /// At a step boundary: asks that the state after the last step, its pending update applied, is
  /// handed to `reader`. That happens in the background as the next step's updates are applied, or
  /// in flush() if that comes first. `reader` must live until finish_snapshot() has returned, or
  /// the engine is gone. Only one may wait for the next step; earlier ones may still be at work.
  void snapshot(StateReader& reader);
  /// Hands over now what was asked for and not begun, which flushes, and returns when every unit
  /// was handed over.
  void finish_snapshot();
  /// Updates applied or pending: AdamW's step count. Skipped steps do not count.
  [[nodiscard]] std::int64_t applied_steps() const { return applied_steps_; }
  void set_applied_steps(std::int64_t steps) { applied_steps_ = steps; }

  /// The sum over all ranks of what each gives. Blocks. @throws PeerError
  double sum_over_ranks(double value);

  /// Per token losses of this rank's tokens. Flushes first.
  std::span<const float> evaluate(const StepInputs& inputs);
  /// Logits of the token at inputs.position of each sequence, [batch, vocabulary] in fp32.
  /// Flushes first.
  std::span<const float> logits(const StepInputs& inputs);

  [[nodiscard]] const Plan& plan(Purpose purpose) const;
  [[nodiscard]] Index device_bytes() const { return memory_.device_bytes(); }
  [[nodiscard]] Index pinned_bytes() const { return memory_.pinned_bytes(); }
  /// Seconds so far that updates waited for readers of the state before them. The device's work may
  /// have hidden them.
  [[nodiscard]] double seconds_held() const;
  /// The most instructions' work that ever waited for a worker of the host at once.
  [[nodiscard]] std::size_t most_queued() const;
  /// Visits of blocks that a training step launches as graphs by now: all from its second run on.
  [[nodiscard]] Index graphs() const;
  /// For tests: see Executor.
  void poison_released_slots(bool on);
  void slow_updates(double seconds);

 private:
  Executor& activate(Purpose purpose);
  /// Runs a body. What fails here ends the step for all ranks.
  void run(Executor& executor, const StepInputs& inputs,
           const std::optional<PendingUpdate>& pending = std::nullopt,
           StateReader* reader = nullptr, Trace* trace = nullptr);

  EnginePlans plans_;
  StepGroups groups_;
  EngineMemory memory_;
  DeviceStreams streams_;
  HostQueue updates_;
  HostQueue snapshots_;
  std::array<std::unique_ptr<Executor>, 3> executors_;
  Executor* active_ = nullptr;
  std::optional<PendingUpdate> pending_;
  bool device_ahead_ = false;      ///< states on the device are newer than the host's copy
  StateReader* reader_ = nullptr;  ///< asked for the state after the pending update
  std::int64_t applied_steps_ = 0;
  std::vector<float> logits_;
};

}  // namespace megatrain
