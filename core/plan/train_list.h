#pragma once
/// @file
/// The training step, breadth first: every unit is fetched once a pass and used by all
/// micro-batches of the wave.

#include "core/plan/list_writer.h"

namespace megatrain {

class TrainListWriter {
 public:
  TrainListWriter(const Model& model, const Choices& choices, const Layout& layout,
                  PlanBuilder& builder);

  /// Constants and clean accumulators (their padding is never written again).
  void prologue(InstructionList& list);
  void body(InstructionList& list);

 private:
  void forward_wave(Index wave);
  void head_visit(Index wave);
  void backward_wave(Index wave);
  void backward_segment(Index first, Index last, Index wave);
  void embedding_backward(Index wave);

  /// Where the boundary that enters `block` of a micro-batch is to be written, given where the
  /// previous one is read from.
  BufferId boundary_target(Index block, Index local, BufferId previous);
  /// Where a forward pass leaves what the block keeps; -1: nothing is kept.
  BufferId kept_target(Index block, Index local);
  /// What is kept exists now: spill it if that is its fate.
  void kept_written(Index block, Index wave, Index local, BufferId buffer);
  /// Where backward finds it; brought back where it was spilled.
  BufferId kept_again(Index block, Index wave, Index local);
  /// Backward is done with it.
  void kept_read(Index block, BufferId buffer);
  /// The boundary exists now: spill it if that is its fate.
  void boundary_written(Index block, Index wave, Index local, BufferId buffer);
  /// Nothing else reads the buffer in forward: back to the pool, unless backward owns it.
  void boundary_read(Index block, BufferId buffer);
  [[nodiscard]] bool starts_segment(Index block) const { return block % choices_.segment == 0; }

  void recompute(Index block, Index wave, Index local, BufferId input, Index part, BufferId output,
                 BufferId kept);
  void backward(Index block, Index wave, Index local, BufferId input, Index part,
                BufferId accumulator, BufferId kept);
  /// Opens an accumulator in a later wave: brings back what earlier waves left.
  void carry_up(Index unit, Index wave, BufferId accumulator);
  /// The wave is done with a unit's gradient: down as fp32, or finished on the wire.
  void finish_gradient(Index unit, Index wave, BufferId accumulator);
  /// Norm and wire type of the whole gradient, and what of them the host needs.
  void finish_on_wire(Index unit, Index wave, BufferId accumulator, Index elements);

  [[nodiscard]] Index micro_batches(Index wave) const {
    return choices_.wave_begin(wave + 1) - choices_.wave_begin(wave);
  }
  /// True for the first micro-batch that adds to a gradient.
  [[nodiscard]] static bool accumulates(Index wave, Index local) { return wave > 0 || local > 0; }

  const Model& model_;
  const Choices& choices_;
  const Layout& layout_;
  ListWriter writer_;
  BufferPool free_stream_;
  BufferPool free_kept_;
  BufferPool free_accumulators_;
  BufferPool free_wires_;
  std::vector<BufferId> current_;  ///< per micro-batch of the wave: its activation, then gradient
};

}  // namespace megatrain
