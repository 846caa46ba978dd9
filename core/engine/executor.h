#pragma once
/// @file
/// Issues the instructions of a plan. It decides nothing: what to do, where, and after what is in
/// the lists. What each of them does is in instruction_work.h.

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/engine_parts.h"
#include "core/engine/instruction_graphs.h"
#include "core/engine/instruction_work.h"
#include "core/engine/slot_ring.h"
#include "core/engine/state_reader.h"
#include "core/engine/step.h"
#include "core/plan/trace.h"

namespace megatrain {

class Executor {
 public:
  Executor(const Plan& plan, const EngineParts& parts);
  ~Executor();

  /// Makes this plan the one that runs: waits for whatever ran before, fills the constants, runs
  /// the prologue.
  void start();
  /// Another plan runs now: what lay on the device is no longer this one's.
  void leave() { runs_ = false; }
  /// One body. Returns when its results are on the host (the only wait for the device).
  /// @param pending  the update that the body's update instructions apply; nullopt: none
  /// @param reader   whom the body's snapshot instructions hand the states to, also after this
  ///                 returns; nullptr: nobody
  /// @param trace    when given, receives the spans of this body; snapshots are then waited for
  void run(const StepInputs& inputs, const std::optional<PendingUpdate>& pending,
           StateReader* reader = nullptr, Trace* trace = nullptr);
  /// The epilogue: applies the pending update of every unit, brings to the host what lives on the
  /// device, and waits for both; hands the states to `reader` and does not wait for that. While
  /// another plan runs nothing is pending or lives there, and there is only the reader.
  void flush(const std::optional<PendingUpdate>& pending, StateReader* reader = nullptr);
  /// Released slots are filled with 0xFF, so that a late read shows. For tests.
  void poison_released_slots(bool on) { poison_ = on; }
  /// Every update first sleeps this long. For tests.
  void slow_updates(double seconds) { slow_updates_ = seconds; }
  /// Seconds so far that host work waited for host work of another stream: updates for readers.
  [[nodiscard]] double seconds_held() const { return seconds_held_; }

  /// Instructions that are launched as graphs by now.
  [[nodiscard]] Index graphs() const { return graphs_ ? graphs_->captured() : 0; }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Per token losses of the last body, in the order of the step's tokens.
  [[nodiscard]] std::span<const float> losses() const;
  /// Squared-norm partials of the last body, of the slices of all units in order.
  [[nodiscard]] std::span<const double> squared_norms() const;
  /// Logits of the last body in the compute type, [batch, vocabulary]; generation only.
  [[nodiscard]] std::span<const std::byte> logits() const;

 private:
  struct Timing;
  /// What one run of a list works with.
  struct Run;
  /// Waits for what the instruction waits for and enqueues what it does.
  void issue(const InstructionList& list, std::size_t n, const Run& run);
  void enqueue(const InstructionList& list, std::size_t n, const Run& run);
  void issue_host_work(const InstructionList& list, std::size_t n, const Run& run);
  /// @param idle  waits for the device alone: later instructions rely on what this one waited for
  void wait(const InstructionList& list, const Instruction& i, bool idle = false);
  /// The worker of a stream, or nullptr.
  [[nodiscard]] HostQueue* queue_of(StreamId stream) const;
  void track_slots(const InstructionList& list, const Instruction& i);
  /// Nothing is to be done for it in this run: what it does nobody asked for.
  [[nodiscard]] static bool idle(const Instruction& i, const Run& run);
  /// What a worker does for an instruction; empty: nothing.
  [[nodiscard]] std::function<void()> host_work(const InstructionList& list, const Instruction& i,
                                                const Run& run);
  [[nodiscard]] std::byte* named(std::string_view name, Index& bytes) const;

  const Plan& plan_;
  EngineParts parts_;
  InstructionWork work_;
  std::optional<InstructionGraphs> graphs_;  ///< of the body, where the plan has them
  SlotRing slots_;
  std::vector<std::string> names_;              ///< of the body's instructions, for profilers
  std::vector<std::unique_ptr<Event>> events_;  ///< per instruction of the body that is waited for
  std::vector<HostQueue::Ticket> tickets_;      ///< the same, of a worker: its latest run
  bool has_previous_body_ = false;
  bool runs_ = false;  ///< between start() and leave()
  bool poison_ = false;
  double slow_updates_ = 0;
  std::atomic<double> seconds_held_ = 0;
};

}  // namespace megatrain
