#pragma once
/// @file
/// Everything that the planner decides, resolved: with the model it determines a plan completely.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/templates.h"
#include "core/store/host_store.h"

namespace megatrain {

enum class EmbeddingMode : std::uint8_t {
  table,  ///< the whole table is fetched
  rows,   ///< the host gathers the rows that a wave's tokens need
};

/// What a plan is for. Evaluation and generation only run forward.
enum class Purpose : std::uint8_t { train, evaluate, generate };

struct Choices {
  Purpose purpose = Purpose::train;
  // --- the numerics key: these decide bits
  MicroBatchShape micro_batch;  ///< sequences and tokens a sequence
  Index micro_batches = 1;      ///< of a step, over all waves
  Index waves = 1;              ///< contiguous runs of micro-batches, as even as can be
  ComputeConfig compute;
  MasterFormat master = MasterFormat::fp32;
  DType moments = DType::f32;  ///< how AdamW's are kept, see StoreOptions
  /// The ranks that train one model together: shard groups of slicing.count ranks each, `replicas`
  /// of them. Everything above counts what this rank does of a step.
  Slicing slicing = {};
  Index replicas = 1;
  // --- these decide memory and time only
  Index slots = 2;     ///< block slots of the ring
  Index segment = 1;   ///< K: blocks between saved boundaries
  Index resident = 0;  ///< first blocks whose weights have a slot of their own
  /// First units (the embedding is one) whose whole state lives on the device and is updated there:
  /// their weights are resident, their gradients never come down. The host's copy is brought up to
  /// date when somebody asks for it.
  Index device_states = 0;
  /// Saved boundaries (each of a whole wave) kept on the device: the last ones in forward order,
  /// which backward wants first. The rest are spilled to pinned host memory.
  Index device_boundaries = 0;
  EmbeddingMode embedding = EmbeddingMode::table;
  std::vector<Keep> keep;  ///< per block; empty: boundary everywhere
  /// Per block: what it keeps is spilled to pinned host memory, and comes back for backward. Empty:
  /// nothing is.
  std::vector<bool> kept_on_host;
  Index staging = 2;           ///< wire buffers between reduce and offload
  Index staging_elements = 0;  ///< of each; a multiple of ops::kNormChunk
  Index spill_buffers = 2;     ///< device buffers in flight between compute and spill
  bool graphs = false;         ///< each visit of a block is launched as one graph

  [[nodiscard]] DType wire() const { return compute.type; }
  [[nodiscard]] Keep keep_of(Index layer) const {
    return keep.empty() ? Keep::boundary : keep[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool spills_kept(Index layer) const {
    return !kept_on_host.empty() && kept_on_host[static_cast<std::size_t>(layer)] &&
           keep_of(layer) != Keep::boundary;
  }
  /// Bytes a host gradient element takes: 4 with an fp32 wire or a carry between waves.
  [[nodiscard]] Index gradient_bytes() const { return wire() == DType::f32 || waves > 1 ? 4 : 2; }
  /// What the host store holds. Evaluation shares the store of a training run.
  [[nodiscard]] StoreContents store_contents() const {
    return purpose == Purpose::generate ? StoreContents::weights : StoreContents::training;
  }
  /// Bytes an element of what only updates write: both moments, and a split master's remainder.
  [[nodiscard]] Index state_bytes() const { return 2 * size_of(moments) + remainder_bytes(master); }
  [[nodiscard]] bool updates_on_device(Index unit) const { return unit < device_states; }
  [[nodiscard]] Index ranks() const { return slicing.count * replicas; }
  /// Of this rank.
  [[nodiscard]] Index step_sequences() const { return micro_batch.batch * micro_batches; }
  [[nodiscard]] Index step_tokens() const { return micro_batch.tokens() * micro_batches; }
  /// Micro-batches [first, last) of a wave.
  [[nodiscard]] Index wave_begin(Index wave) const { return micro_batches * wave / waves; }
};

/// Sets device_states and what comes with them: resident weights, the whole table.
void hold_states(Choices& choices, const Model& model, Index units);

/// `count` of the blocks [first, blocks), as far from one another as can be: copies of one hide
/// under the computing of the others.
std::vector<bool> spread_evenly(Index count, Index blocks, Index first = 0);

/// Refuses choices that contradict one another or the model. @throws UserError
void validate(const Choices& choices, const Model& model);

/// "2 x 4": two replicas of four slices, as the numerics key has it.
std::string world_text(const Slicing& slicing, Index replicas);

/// All that decides the bits of a step besides the weights and data, as stable text lines
/// ("key = value"), device numerics included. Equal text: equal bits, as far as sums
/// over ranks repeat theirs: see Communicator.
std::string numerics_key(const Choices& choices, const Model& model, std::string_view device);

}  // namespace megatrain
