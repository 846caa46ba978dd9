#pragma once
/// @file
/// What training, evaluation and generation lists have in common.

#include <initializer_list>

#include "core/plan/costs.h"
#include "core/plan/layout.h"

namespace megatrain {

/// Writes single instructions of one plan. Keeps which block is in which slot.
class ListWriter {
 public:
  ListWriter(const Model& model, const Choices& choices, const Layout& layout,
             PlanBuilder& builder);

  /// Starts a list: every slot is empty, every pool is as at the first step.
  void begin(InstructionList& list);

  void upload_constants();
  void zero(BufferId accumulator, std::int32_t unit);
  void stage_and_upload();
  /// Once: the states of units that are updated on the device.
  void states_up();
  /// The pending update of a unit, if there is one, and the hand-over of what it leaves.
  void update(Index unit);
  /// A unit's newest weights into a slot; nothing where they live there.
  void fetch(Index unit, Index wave, BufferId slot);
  /// Host work at the start of a training step: the rows that the waves need are gathered as soon
  /// as the embedding is updated, because nothing computes before them.
  void updates_and_gathers();
  /// The embedding rows that each wave needs into pinned memory.
  void gather_rows();
  /// The embedding of a wave: its table or rows come to the device, tokens become boundaries.
  /// `output` names the buffer of each micro-batch of the wave.
  void fetch_embedding(Index wave);
  void embed(Index wave, Index micro_batch, BufferId output);
  void release_embedding();
  void fetch_head(Index wave);
  void release_head();
  /// The slot that holds the block, fetched now unless it already does.
  BufferId hold(Index block, Index wave);
  void release(Index block, Index wave);
  void forward(Index block, Index wave, Index micro_batch, BufferId kept, BufferId input,
               BufferId output);
  void download_losses();
  void collect(bool gradients);

  void add(const Instruction& instruction, std::initializer_list<Operand> operands);
  [[nodiscard]] const Costs& costs() const { return costs_; }
  /// Bytes of one boundary.
  [[nodiscard]] Index activation_bytes() const;
  /// Elements of a unit that the host of this rank holds.
  [[nodiscard]] Index slice_elements(Index unit) const {
    return choices_.slicing.slice(model_.unit(unit).slab_elements);
  }

 private:
  const Model& model_;
  const Choices& choices_;
  const Layout& layout_;
  PlanBuilder& builder_;
  Costs costs_;
  /// Where the weights of a unit that is updated on the device live.
  [[nodiscard]] BufferId home(Index unit) const;
  void update_on_device(Index unit);
  /// What each rank has of a slot is its slice: the others' follow.
  void all_gather(Index unit, Index wave, BufferId slot);

  BufferPool free_slots_;
  std::vector<BufferId> slot_of_;  ///< per block, -1 when not held
};

}  // namespace megatrain
