#pragma once
/// @file
/// A step plan: the immutable lists of instructions that the engine issues, the buffers that they
/// name, and nothing that decides anything.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/choices.h"

namespace megatrain {

/// Where an instruction runs. The first six are device streams, of which `gather` and `scatter` are
/// for what ranks do together; `update` is the host optimizer's worker; `host` is the issuing
/// thread itself; `snapshot` is the worker that hands states over.
enum class StreamId : std::uint8_t {
  compute,
  fetch,
  offload,
  spill,
  gather,
  scatter,
  update,
  host,
  snapshot,
};
inline constexpr std::size_t kStreams = 9;
inline constexpr std::size_t kDeviceStreams = 6;
/// The latest instruction of each stream that is known to have ended; -1: none.
using Clock = std::array<std::int32_t, kStreams>;
inline constexpr Clock kNothingEnded = [] {
  Clock clock{};
  clock.fill(-1);
  return clock;
}();
std::string_view name(StreamId stream);
constexpr bool on_device(StreamId stream) {
  return static_cast<std::size_t>(stream) < kDeviceStreams;
}

enum class OpCode : std::uint8_t {
  stage,           ///< host: the step's tokens into pinned memory
  upload,          ///< fetch: the staged tokens (or the constants, in the prologue) to the device
  update,          ///< update: the pending AdamW update of a unit, if there is one
  state_up,        ///< fetch: weights and states of a unit that is updated on the device
  device_update,   ///< compute: the pending update of such a unit, if there is one
  state_down,      ///< offload: such a unit's weights and states to the host, when somebody asks
  gather,          ///< update: the embedding rows that a wave needs into pinned memory
  fetch,           ///< fetch: a unit's weight slab into a slot (or gathered rows to the device);
                   ///< where the host holds a slice, that slice into its place
  all_gather,      ///< gather: the other ranks' slices into the slot
  embed,           ///< compute: tokens to the first boundary
  forward,         ///< compute: a block
  spill,           ///< spill: a boundary to pinned host memory
  unspill,         ///< spill: back
  head,            ///< compute: logits, loss, and their gradient
  evaluate,        ///< compute: logits and loss only
  logits,          ///< compute: logits of chosen tokens
  recompute,       ///< compute: a block's intermediates from its boundary
  backward,        ///< compute: a block
  zero,            ///< compute: clears an accumulator
  embed_backward,  ///< compute: the table's gradient
  sum_parts,       ///< compute: of a finished gradient, what each part of the model has a share of
                   ///< becomes the sum over the parts
  carry_up,        ///< fetch: an fp32 accumulator from the host, for a later wave
  carry_down,      ///< offload: an fp32 accumulator to the host, before a later wave
  reduce_scatter,  ///< scatter: this rank's slice of an accumulator becomes the shard group's sum
  all_reduce,      ///< scatter: and then the sum over all replicas
  reduce,          ///< compute, with several ranks scatter: squared norm and wire type of a piece
                   ///< of (the slice of) an accumulator
  offload,         ///< offload: a piece of a gradient and its norm partials to the host; of a unit
                   ///< that is updated on the device the partials alone
  release,         ///< compute: the end of a slot's use
  download,        ///< offload: losses (or logits) to the host
  collect,         ///< host: waits for the step's results (losses, norms, gradients)
  snapshot,        ///< snapshot: hands a unit's state to a reader, if there is one
};
std::string_view name(OpCode op);
/// With Choices::graphs this is launched as one graph: it enqueues the same kernels with the same
/// arguments at every run of the body. Others compute with scalars of the step, or are one kernel.
constexpr bool runs_as_graph(OpCode op) {
  return op == OpCode::forward || op == OpCode::recompute || op == OpCode::backward;
}

enum class MemorySpace : std::uint8_t {
  device,  ///< the plan's one device arena
  pinned,  ///< the plan's own pinned host arena
  store,   ///< slabs of the host store; `offset` only tells ranges apart
};

using BufferId = std::int32_t;

/// A named range of memory. Views lie inside an allocation and are not counted.
struct Buffer {
  std::string name;
  MemorySpace space = MemorySpace::device;
  Index offset = 0;  ///< bytes from the start of the space
  Index bytes = 0;
  bool view = false;
  std::int32_t unit = -1;  ///< store: whose slab
};

/// What an instruction uses a buffer for; how the executor binds pointers.
enum class Role : std::uint8_t {
  source,
  destination,  // copies
  weights,
  table,  // slots: the unit's, and the tied embedding's for the head
  rows,   // gathered embedding rows
  input,
  output,
  kept,
  recomputed,
  temporary,
  gradient_stream,
  gradient,
  table_gradient,  // fp32 accumulators
  wire,
  device_state,  // as host_state, of a unit that is updated on the device
  partials,
  losses,
  batch,
  constants,
  host_weights,
  host_state,  // what else an update writes: moments, and the remainder of a split master
  host_gradient,
  host_partials,
  host_results,
};

enum class Access : std::uint8_t { read, write, read_write };
constexpr bool writes(Access access) { return access != Access::read; }
constexpr bool reads(Access access) { return access != Access::write; }

struct Operand {
  BufferId buffer = -1;
  Role role = Role::source;
  Access access = Access::read;
};

/// The end of an earlier instruction. bodies_back = 1: of its latest run before this run of the
/// body (or of the epilogue); there is none in the first run, and then nothing to wait for.
struct Wait {
  std::int32_t instruction = 0;
  std::int32_t bodies_back = 0;
  bool operator==(const Wait&) const = default;
};

/// What an instruction costs; the simulator divides by rates.
struct Cost {
  double flops = 0;            ///< of matrix products
  double attention_flops = 0;  ///< of attention, over the pairs that it looks at
  Index device_bytes = 0;      ///< element-wise traffic of activations
  Index slab_bytes = 0;        ///< of kernels that walk a unit's slab once
  Index link_bytes = 0;        ///< over PCIe
  Index peer_bytes = 0;        ///< received from other ranks, parts of the model among them
  Index host_elements = 0;     ///< updated by AdamW
  Index launches = 1;  ///< of kernels and copies by the issuing thread; a graph counts as a few
};

struct Instruction {
  OpCode op = OpCode::stage;
  StreamId stream = StreamId::compute;
  std::int32_t unit = -1;
  std::int32_t micro_batch = -1;  ///< of the step, counted over all waves
  std::int32_t wave = -1;
  bool accumulate = false;  ///< adds to an accumulator that holds earlier micro-batches
  Index first = 0;          ///< reduce, offload: first element of the piece, in the slice
  Index count = 0;          ///< reduce, offload: elements of the piece
  std::uint32_t operands_begin = 0, operands_end = 0;  ///< in InstructionList::operands
  std::uint32_t waits_begin = 0, waits_end = 0;        ///< in InstructionList::waits
  Cost cost{};
};

/// A flat list in issue order.
struct InstructionList {
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<Wait> waits;

  [[nodiscard]] std::span<const Operand> operands_of(const Instruction& i) const {
    return std::span(operands).subspan(i.operands_begin, i.operands_end - i.operands_begin);
  }
  [[nodiscard]] std::span<const Wait> waits_of(const Instruction& i) const {
    return std::span(waits).subspan(i.waits_begin, i.waits_end - i.waits_begin);
  }
  /// The buffer with this role. @throws LogicError when there is none
  [[nodiscard]] BufferId buffer(const Instruction& i, Role role) const;
  /// The same, or -1.
  [[nodiscard]] BufferId find(const Instruction& i, Role role) const;
};

/// "forward block 3 micro-batch 1", for errors and traces.
std::string describe(const Instruction& instruction, Index units);

/// Bytes of each memory space that the plan allocates (store excluded: store_bytes()).
struct Plan {
  Choices choices;
  Index units = 0;
  /// Per unit: its gradient is not whole before sum_parts.
  std::vector<bool> sums_parts;
  std::vector<Buffer> buffers;
  Index device_bytes = 0;
  Index pinned_bytes = 0;
  InstructionList prologue;  ///< once: constants
  InstructionList body;      ///< each step
  /// flush: which instructions of the body run by themselves to apply all pending updates and to
  /// hand over what they leave, in order. Their waits hold there as they hold in the body.
  std::vector<std::int32_t> epilogue;

  [[nodiscard]] const Buffer& buffer(BufferId id) const {
    return buffers[static_cast<std::size_t>(id)];
  }
};

}  // namespace megatrain
