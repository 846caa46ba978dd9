#pragma once
/// @file
/// The buffers of a plan: what is allocated for given choices, by name. The instruction writers
/// only hand them out.

#include <deque>
#include <vector>

#include "core/plan/builder.h"

namespace megatrain {

/// What the tokens of one micro-batch take in the batch buffers: int32 each, in this order.
struct BatchLayout {
  Index tokens = 0;
  [[nodiscard]] Index ids() const { return 0; }
  [[nodiscard]] Index targets() const { return tokens; }
  [[nodiscard]] Index order() const { return 2 * tokens; }
  [[nodiscard]] Index begins() const { return 3 * tokens; }
  [[nodiscard]] Index unique() const { return 4 * tokens + 1; }
  [[nodiscard]] Index elements() const { return 5 * tokens + 1; }
  [[nodiscard]] Index bytes() const { return round_up(elements() * 4, 256); }
};

/// Positions that rotary tables cover: the plan's sequence length.
Index constants_bytes(const ModelConfig& config, Index sequence);

/// Embedding rows that a wave may need at most; learned positions lie behind them.
Index gathered_row_capacity(const Choices& choices, const ModelConfig& config);

/// Buffers handed out and taken back in order, so that the longest unused one is next and the
/// streams have the most time to finish with it.
class BufferPool {
 public:
  void add(BufferId id) { free_.push_back(id); }
  [[nodiscard]] bool empty() const { return free_.empty(); }
  BufferId acquire() {
    require(!free_.empty(), "a plan's buffer pool is large enough for its lists");
    const BufferId id = free_.front();
    free_.pop_front();
    return id;
  }
  void release(BufferId id) { free_.push_back(id); }

 private:
  std::deque<BufferId> free_;
};

/// Every buffer of a plan. Vectors indexed by micro-batch count inside a wave unless said.
struct Layout {
  Layout(const Model& model, const Choices& choices, PlanBuilder& builder);

  Index wave_micro_batches = 0;     ///< the largest wave's
  std::vector<Index> saved_blocks;  ///< first blocks of the segments
  /// Boundaries of these blocks (a suffix of saved_blocks) stay on the device.
  [[nodiscard]] bool on_device(Index block) const { return !boundaries[at(block)].empty(); }
  [[nodiscard]] bool spilled(Index block) const { return !spill[at(block)].empty(); }
  [[nodiscard]] bool kept_spilled(Index block) const { return !kept_spill[at(block)].empty(); }
  [[nodiscard]] static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  // device
  BufferId constants = -1;
  BufferId batch = -1;
  std::vector<BufferId> batch_of;  ///< per micro-batch of the step
  BufferId losses = -1;
  std::vector<BufferId> losses_of;  ///< per micro-batch of the step
  BufferId table_slot = -1;         ///< the embedding's slab
  BufferId head_slot = -1;
  BufferId rows = -1;                             ///< gathered rows
  std::vector<BufferId> slots;                    ///< the ring
  std::vector<BufferId> resident;                 ///< per resident block
  std::vector<std::vector<BufferId>> kept;        ///< [block][micro-batch], empty: none on device
  std::vector<BufferId> kept_transit;             ///< kept intermediates on their way
  std::vector<std::vector<BufferId>> boundaries;  ///< [block][micro-batch], empty: not on device
  std::vector<BufferId> stream;                   ///< activations in flight, gradient streams
  std::vector<BufferId> recomputed;               ///< one a block of a segment
  std::vector<BufferId> inner;                    ///< boundaries inside a segment
  BufferId temporary = -1;
  std::vector<BufferId> accumulators;  ///< of blocks
  BufferId head_accumulator = -1;
  BufferId table_accumulator = -1;
  std::vector<BufferId> wires;
  std::vector<BufferId> device_state;     ///< per unit that is updated on the device
  std::vector<BufferId> device_gradient;  ///< the same
  BufferId partials = -1;
  std::vector<BufferId> partials_of;  ///< per unit
  BufferId logits = -1;               ///< generation: [batch, vocabulary]

  // pinned
  BufferId host_constants = -1;
  BufferId host_batch = -1;
  BufferId host_losses = -1;
  BufferId host_partials = -1;
  std::vector<BufferId> host_partials_of;         ///< per unit
  std::vector<BufferId> host_rows;                ///< per wave
  std::vector<std::vector<BufferId>> spill;       ///< [block][micro-batch], empty: not spilled
  std::vector<std::vector<BufferId>> kept_spill;  ///< the same of kept intermediates
  BufferId host_logits = -1;

  // store
  std::vector<BufferId> host_weights;   ///< per unit
  std::vector<BufferId> host_state;     ///< per unit: moments and remainder; training
  std::vector<BufferId> host_gradient;  ///< per unit; training
};

}  // namespace megatrain
