#pragma once
/// @file
/// What each instruction of a plan does. When, and after what, is the executor's to see to.

#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine_parts.h"
#include "core/engine/step.h"
#include "core/engine/unit_states.h"
#include "core/model/templates.h"
#include "core/optim/unit_update.h"

namespace megatrain {

class InstructionWork {
 public:
  /// @param plan  must outlive this
  InstructionWork(const Plan& plan, const EngineParts& parts);

  /// Enqueues an instruction of a device stream on that stream, or does that of the issuing thread.
  /// @param pending  what device updates apply; there is one for each that is enqueued
  /// @throws LogicError for an instruction of a host worker
  void enqueue(const InstructionList& list, const Instruction& i, const StepInputs& inputs,
               const std::optional<PendingUpdate>& pending) const;
  /// Enqueues one byte value for the whole of an operand.
  void fill(const InstructionList& list, const Instruction& i, Role role, std::uint8_t value) const;
  /// The work of a gather instruction: rows of the embedding into pinned memory.
  void gather_rows(const InstructionList& list, const Instruction& i,
                   std::span<const std::int32_t> rows) const;

 private:
  void copy(const InstructionList& list, const Instruction& i, Role to, Role from) const;
  /// A unit's slab, or the slice that the host holds of it, between a device buffer and the store.
  void copy_up(const InstructionList& list, const Instruction& i, Role to, Role from) const;
  void copy_down(const InstructionList& list, const Instruction& i, Role to, Role from) const;
  /// What the ranks of the plan do together.
  void communicate(const InstructionList& list, const Instruction& i) const;
  void sum_parts(const InstructionList& list, const Instruction& i) const;
  void reduce(const InstructionList& list, const Instruction& i) const;
  /// What of the elements of a reduce instruction another part's norm counts.
  [[nodiscard]] ops::UncountedRuns uncounted(const Instruction& i) const;
  [[nodiscard]] UnitStates unit_states(const InstructionList& list, const Instruction& i) const;
  void device_update(const InstructionList& list, const Instruction& i,
                     const PendingUpdate& pending) const;
  void offload(const InstructionList& list, const Instruction& i) const;
  void run_block(const InstructionList& list, const Instruction& i) const;
  void run_embedding(const InstructionList& list, const Instruction& i,
                     const StepInputs& inputs) const;
  void run_head(const InstructionList& list, const Instruction& i, const StepInputs& inputs) const;
  /// Where the operand lies, or nullptr where the instruction has none in this role.
  [[nodiscard]] std::byte* pointer(const InstructionList& list, const Instruction& i,
                                   Role role) const;
  /// Where this rank's slice begins in a slot or an accumulator of the instruction's unit.
  [[nodiscard]] std::byte* slice(const InstructionList& list, const Instruction& i,
                                 Role role) const;
  [[nodiscard]] const std::int32_t* batch_part(const InstructionList& list, const Instruction& i,
                                               Index offset) const;

  const Plan& plan_;
  EngineParts parts_;
  std::vector<Block> blocks_;
  Embedding embedding_;
  Head head_;
};

}  // namespace megatrain
