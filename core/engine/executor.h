#pragma once
/// @file
/// Issues the instructions of a plan. It decides nothing: what to do, where, and after what is in
/// the lists.

#include <memory>
#include <optional>
#include <vector>

#include "core/engine/host_queue.h"
#include "core/engine/memory.h"
#include "core/engine/slot_ring.h"
#include "core/engine/step.h"
#include "core/model/templates.h"
#include "core/plan/layout.h"
#include "core/plan/trace.h"

namespace megatrain {

/// The four device streams, shared by all plans of an engine.
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
  ThreadPool& update_pool;
};

class Executor {
 public:
  Executor(const Plan& plan, const EngineParts& parts);
  ~Executor();

  /// Makes this plan the one that runs: waits for whatever ran before, fills the constants, runs
  /// the prologue.
  void start();
  /// One body. Returns when its results are on the host (the only wait for the device).
  /// @param pending  the update that the body's update instructions apply; nullopt: none
  /// @param trace    when given, receives the spans of this body
  void run(const StepInputs& inputs, const std::optional<PendingUpdate>& pending,
           Trace* trace = nullptr);
  /// The epilogue: applies the pending update of every unit and waits for it.
  void flush(const PendingUpdate& pending);
  /// Released slots are filled with 0xFF, so that a late read shows. For tests.
  void poison_released_slots(bool on) { poison_ = on; }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Per token losses of the last body, in the order of the step's tokens.
  [[nodiscard]] std::span<const float> losses() const;
  /// Squared-norm partials of the last body, all units in order.
  [[nodiscard]] std::span<const double> squared_norms() const;
  /// Logits of the last body in the compute type, [batch, vocabulary]; generation only.
  [[nodiscard]] std::span<const std::byte> logits() const;

 private:
  struct Timing;
  void issue(const InstructionList& list, const StepInputs& inputs,
             const std::optional<PendingUpdate>& pending, bool has_previous, Timing* timing);
  void wait(const InstructionList& list, const Instruction& i, bool has_previous);
  void track_slots(const InstructionList& list, const Instruction& i);
  void execute(const InstructionList& list, const Instruction& i, const StepInputs& inputs);
  void enqueue_update(const InstructionList& list, const Instruction& i, const StepInputs& inputs,
                      const std::optional<PendingUpdate>& pending, HostQueue::Ticket& ticket,
                      Timing* timing);
  void copy(const InstructionList& list, const Instruction& i, Role to, Role from);
  void reduce(const InstructionList& list, const Instruction& i);
  void offload(const InstructionList& list, const Instruction& i);
  void run_block(const InstructionList& list, const Instruction& i);
  void run_embedding(const InstructionList& list, const Instruction& i, const StepInputs& inputs);
  void run_head(const InstructionList& list, const Instruction& i, const StepInputs& inputs);
  void gather_rows(const InstructionList& list, const Instruction& i,
                   std::span<const std::int32_t> rows) const;
  [[nodiscard]] std::byte* pointer(const InstructionList& list, const Instruction& i,
                                   Role role) const;
  [[nodiscard]] const std::int32_t* batch_part(const InstructionList& list, const Instruction& i,
                                               Index offset) const;
  [[nodiscard]] std::byte* named(std::string_view name, Index& bytes) const;

  const Plan& plan_;
  EngineParts parts_;
  std::vector<Block> blocks_;
  Embedding embedding_;
  Head head_;
  SlotRing slots_;
  std::vector<std::string> names_;              ///< of the body's instructions, for profilers
  std::vector<std::unique_ptr<Event>> events_;  ///< per instruction of the body that is waited for
  std::vector<HostQueue::Ticket> tickets_;      ///< per instruction of the body on `update`
  bool has_previous_body_ = false;
  bool poison_ = false;
};

}  // namespace megatrain
