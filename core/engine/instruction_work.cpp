#include "core/engine/instruction_work.h"

#include <algorithm>
#include <cstring>

#include "core/plan/layout.h"

namespace megatrain {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

}  // namespace

InstructionWork::InstructionWork(const Plan& plan, const EngineParts& parts)
    : plan_(plan),
      parts_(parts),
      embedding_(parts.model, plan.choices.compute, plan.choices.micro_batch),
      head_(parts.model, plan.choices.compute, plan.choices.micro_batch) {
  for (Index b = 0; b < parts.model.config().layers; ++b)
    blocks_.emplace_back(parts.model, b + 1, plan.choices.compute, plan.choices.micro_batch);
}

void InstructionWork::enqueue(const InstructionList& list, const Instruction& i,
                              const StepInputs& inputs,
                              const std::optional<PendingUpdate>& pending) const {
  switch (i.op) {
    case OpCode::stage:
      std::memcpy(pointer(list, i, Role::destination), inputs.tokens.data(),
                  inputs.tokens.size_bytes());
      return;
    case OpCode::fetch:
      if (list.find(i, Role::source) >= 0) return copy(list, i, Role::destination, Role::source);
      return copy_up(list, i, Role::weights, Role::host_weights);
    case OpCode::upload:
    case OpCode::spill:
    case OpCode::unspill:
    case OpCode::download:
      return copy(list, i, Role::destination, Role::source);
    case OpCode::carry_up:
      return copy_up(list, i, Role::gradient, Role::host_gradient);
    case OpCode::carry_down:
      return copy_down(list, i, Role::host_gradient, Role::gradient);
    case OpCode::state_up:
      return unit_states(list, i).up(parts_.streams.of(i.stream));
    case OpCode::state_down:
      return unit_states(list, i).down(parts_.streams.of(i.stream));
    case OpCode::device_update:
      return device_update(list, i, pending.value());
    case OpCode::all_gather:
    case OpCode::reduce_scatter:
    case OpCode::all_reduce:
      return communicate(list, i);
    case OpCode::embed:
    case OpCode::embed_backward:
      return run_embedding(list, i, inputs);
    case OpCode::forward:
    case OpCode::recompute:
    case OpCode::backward:
      return run_block(list, i);
    case OpCode::head:
    case OpCode::evaluate:
    case OpCode::logits:
      return run_head(list, i, inputs);
    case OpCode::sum_parts:
      return sum_parts(list, i);
    case OpCode::zero:
      return fill(list, i, Role::destination, 0);
    case OpCode::reduce:
      return reduce(list, i);
    case OpCode::offload:
      return offload(list, i);
    case OpCode::release:  // says that a slot is free, no more
    case OpCode::collect:  // its waits are the work
      return;
    case OpCode::update:
    case OpCode::gather:
    case OpCode::snapshot:
      break;
  }
  throw LogicError("internal error: instruction on the wrong stream");
}

void InstructionWork::fill(const InstructionList& list, const Instruction& i, Role role,
                           std::uint8_t value) const {
  parts_.streams.of(i.stream).fill(pointer(list, i, role), value,
                                   plan_.buffer(list.buffer(i, role)).bytes);
}

void InstructionWork::gather_rows(const InstructionList& list, const Instruction& i,
                                  std::span<const std::int32_t> rows) const {
  const ModelConfig& config = parts_.model.config();
  const Index row_bytes = config.hidden * size_of(plan_.choices.compute.type);
  const Unit& unit = parts_.model.unit(0);
  const Index element = size_of(plan_.choices.compute.type);
  const std::byte* weights = parts_.store.weights(0);
  std::byte* target = pointer(list, i, Role::destination);
  const std::byte* table = weights + unit.find(ParamRole::token_table)->offset * element;
  constexpr std::size_t kRowsAPiece = 256;
  const auto pieces = static_cast<Index>((rows.size() + kRowsAPiece - 1) / kRowsAPiece);
  parts_.update_pool.for_each(pieces, [&](Index piece) {
    const std::size_t begin = at(piece) * kRowsAPiece;
    const std::size_t end = std::min(begin + kRowsAPiece, rows.size());
    for (std::size_t r = begin; r < end; ++r)
      std::memcpy(target + static_cast<Index>(r) * row_bytes, table + rows[r] * row_bytes,
                  at(row_bytes));
  });
  if (const ParamDesc* positions = unit.find(ParamRole::position_table)) {
    const Index bytes = plan_.choices.micro_batch.sequence * row_bytes;
    std::memcpy(target + gathered_row_capacity(plan_.choices, config) * row_bytes,
                weights + positions->offset * element, at(bytes));
  }
}

void InstructionWork::copy(const InstructionList& list, const Instruction& i, Role to,
                           Role from) const {
  const Buffer& destination = plan_.buffer(list.buffer(i, to));
  const Buffer& source = plan_.buffer(list.buffer(i, from));
  parts_.streams.of(i.stream).copy(pointer(list, i, to), pointer(list, i, from),
                                   std::min(destination.bytes, source.bytes));
}

void InstructionWork::copy_up(const InstructionList& list, const Instruction& i, Role to,
                              Role from) const {
  parts_.streams.of(i.stream).copy(slice(list, i, to), pointer(list, i, from),
                                   plan_.buffer(list.buffer(i, from)).bytes);
}

void InstructionWork::copy_down(const InstructionList& list, const Instruction& i, Role to,
                                Role from) const {
  parts_.streams.of(i.stream).copy(pointer(list, i, to), slice(list, i, from),
                                   plan_.buffer(list.buffer(i, to)).bytes);
}

void InstructionWork::communicate(const InstructionList& list, const Instruction& i) const {
  Stream& stream = parts_.streams.of(i.stream);
  const Index count = plan_.choices.slicing.slice(parts_.model.unit(i.unit).slab_elements);
  const auto floats = [](std::byte* data) { return reinterpret_cast<float*>(data); };
  if (i.op == OpCode::all_gather)
    parts_.groups.gather->all_gather(stream, slice(list, i, Role::weights),
                                     pointer(list, i, Role::weights), count, plan_.choices.wire());
  else if (i.op == OpCode::reduce_scatter)
    parts_.groups.scatter->reduce_scatter(stream, floats(pointer(list, i, Role::gradient)),
                                          floats(slice(list, i, Role::gradient)), count);
  else
    parts_.groups.replicas->all_reduce(stream, floats(slice(list, i, Role::gradient)), count);
}

void InstructionWork::sum_parts(const InstructionList& list, const Instruction& i) const {
  auto* gradient = reinterpret_cast<float*>(pointer(list, i, Role::gradient));
  for (const ParamDesc& param : parts_.model.unit(i.unit).params)
    if (param.shard.sum_gradient)
      parts_.groups.parts->sum(parts_.streams.of(i.stream), gradient + param.offset,
                               param.elements(), DType::f32);
}

ops::UncountedRuns InstructionWork::uncounted(const Instruction& i) const {
  ops::UncountedRuns result;
  const Unit& unit = parts_.model.unit(i.unit);
  const Index begin = plan_.choices.slicing.begin(unit.slab_elements) + i.first;
  for (const ParamDesc& param : unit.params) {
    if (param.counted()) continue;
    // Padding between them is zero: neighbours are one run.
    const Index first = std::clamp<Index>(param.offset - begin, 0, i.count);
    const Index last =
        std::clamp<Index>(param.offset + param.padded_elements() - begin, 0, i.count);
    if (first == last) continue;
    if (result.count > 0 && result.runs[at(result.count - 1)].last == first) {
      result.runs[at(result.count - 1)].last = last;
      continue;
    }
    require(result.count < ops::UncountedRuns::kMost,
            "the parameters of a unit that every part holds lie in a few places");
    result.runs[at(result.count++)] = {first, last};
  }
  return result;
}

void InstructionWork::reduce(const InstructionList& list, const Instruction& i) const {
  const auto* gradient = reinterpret_cast<const float*>(slice(list, i, Role::gradient));
  auto* partials = reinterpret_cast<double*>(pointer(list, i, Role::partials));
  parts_.ops.run(parts_.streams.of(i.stream),
                 ops::ReduceGradient{.count = i.count,
                                     .gradient = gradient + i.first,
                                     .wire_type = plan_.choices.wire(),
                                     .wire = pointer(list, i, Role::wire),
                                     .partials = partials + i.first / ops::kNormChunk,
                                     .uncounted = uncounted(i)});
}

UnitStates InstructionWork::unit_states(const InstructionList& list, const Instruction& i) const {
  return UnitStates::of(parts_.store, i.unit, slice(list, i, Role::weights),
                        pointer(list, i, Role::device_state));
}

void InstructionWork::device_update(const InstructionList& list, const Instruction& i,
                                    const PendingUpdate& pending) const {
  AdamWSlice states = unit_states(list, i).device;
  states.gradient = pointer(list, i, Role::wire);
  states.gradient_type = plan_.choices.wire();
  update_unit(parts_.ops, parts_.streams.of(i.stream), parts_.model, i.unit,
              plan_.choices.slicing.elements(parts_.model.unit(i.unit).slab_elements), states,
              pending);
}

void InstructionWork::offload(const InstructionList& list, const Instruction& i) const {
  Stream& stream = parts_.streams.of(i.stream);
  const Index element = size_of(plan_.choices.wire());
  if (const std::byte* wire = pointer(list, i, Role::wire))
    stream.copy(pointer(list, i, Role::host_gradient) + i.first * element, wire, i.count * element);
  const Index first = i.first / ops::kNormChunk * 8;
  stream.copy(pointer(list, i, Role::host_partials) + first,
              pointer(list, i, Role::partials) + first, ops::norm_partials(i.count) * 8);
}

void InstructionWork::run_block(const InstructionList& list, const Instruction& i) const {
  const Index layer = i.unit - 1;
  const Keep keep =
      plan_.choices.purpose == Purpose::train ? plan_.choices.keep_of(layer) : Keep::boundary;
  const ModelConfig& config = parts_.model.config();
  BlockBuffers buffers;
  buffers.weights = pointer(list, i, Role::weights);
  buffers.input = pointer(list, i, Role::input);
  buffers.output = pointer(list, i, Role::output);
  buffers.kept = pointer(list, i, Role::kept);
  buffers.recomputed = pointer(list, i, Role::recomputed);
  buffers.temporary = pointer(list, i, Role::temporary);
  buffers.gradient_stream = pointer(list, i, Role::gradient_stream);
  buffers.gradient = reinterpret_cast<float*>(pointer(list, i, Role::gradient));
  buffers.accumulate = i.accumulate;
  if (const std::byte* constants = pointer(list, i, Role::constants)) {
    buffers.rope_cosine = reinterpret_cast<const float*>(constants);
    buffers.rope_sine =
        buffers.rope_cosine + plan_.choices.micro_batch.sequence * (config.head_dim / 2);
  }
  const Block& block = blocks_[at(layer)];
  const PartGroup& group = *parts_.groups.parts;
  Stream& stream = parts_.streams.of(i.stream);
  if (i.op == OpCode::forward)
    block.forward(parts_.ops, stream, keep, buffers, group);
  else if (i.op == OpCode::recompute)
    block.recompute(parts_.ops, stream, keep, buffers, group);
  else
    block.backward(parts_.ops, stream, keep, buffers, group);
}

void InstructionWork::run_embedding(const InstructionList& list, const Instruction& i,
                                    const StepInputs& inputs) const {
  const ModelConfig& config = parts_.model.config();
  const BatchLayout layout{plan_.choices.micro_batch.tokens()};
  EmbeddingBuffers buffers;
  buffers.ids = batch_part(list, i, layout.ids());
  Stream& stream = parts_.streams.of(i.stream);
  if (i.op == OpCode::embed) {
    buffers.weights = pointer(list, i, Role::weights);
    buffers.output = pointer(list, i, Role::output);
    if (const std::byte* rows = pointer(list, i, Role::rows)) {
      buffers.rows = rows;
      if (config.learned_positions)
        buffers.positions = rows + gathered_row_capacity(plan_.choices, config) * config.hidden *
                                       size_of(plan_.choices.compute.type);
    }
    embedding_.forward(parts_.ops, stream, buffers, *parts_.groups.parts);
    return;
  }
  buffers.gradient_stream = pointer(list, i, Role::gradient_stream);
  buffers.order = batch_part(list, i, layout.order());
  buffers.begins = batch_part(list, i, layout.begins());
  buffers.unique = batch_part(list, i, layout.unique());
  buffers.uniques = inputs.uniques[at(i.micro_batch)];
  buffers.gradient = reinterpret_cast<float*>(pointer(list, i, Role::gradient));
  buffers.accumulate_positions = i.accumulate;
  embedding_.backward(parts_.ops, stream, buffers);
}

void InstructionWork::run_head(const InstructionList& list, const Instruction& i,
                               const StepInputs& inputs) const {
  HeadBuffers buffers;
  buffers.weights = pointer(list, i, Role::weights);
  buffers.table = pointer(list, i, Role::table);
  buffers.temporary = pointer(list, i, Role::temporary);
  buffers.scale = inputs.scale;
  Stream& stream = parts_.streams.of(i.stream);
  if (i.op == OpCode::logits) {
    buffers.input = pointer(list, i, Role::input);
    const MicroBatchShape shape = plan_.choices.micro_batch;
    const Index row = parts_.model.config().vocabulary * size_of(plan_.choices.compute.type);
    for (Index b = 0; b < shape.batch; ++b)
      head_.logits(parts_.ops, stream, buffers, b * shape.sequence + inputs.position, 1,
                   pointer(list, i, Role::losses) + b * row, *parts_.groups.parts);
    return;
  }
  buffers.targets = batch_part(list, i, BatchLayout{plan_.choices.micro_batch.tokens()}.targets());
  buffers.losses = reinterpret_cast<float*>(pointer(list, i, Role::losses));
  if (i.op == OpCode::evaluate) {
    buffers.input = pointer(list, i, Role::input);
  } else {
    buffers.gradient_stream = pointer(list, i, Role::gradient_stream);
    buffers.input = buffers.gradient_stream;
    buffers.gradient = reinterpret_cast<float*>(pointer(list, i, Role::gradient));
    buffers.table_gradient = reinterpret_cast<float*>(pointer(list, i, Role::table_gradient));
    buffers.accumulate = i.accumulate;
  }
  head_.visit(parts_.ops, stream, buffers, *parts_.groups.parts);
}

std::byte* InstructionWork::pointer(const InstructionList& list, const Instruction& i,
                                    Role role) const {
  const BufferId id = list.find(i, role);
  return id < 0 ? nullptr : parts_.memory.locate(plan_.buffer(id), role);
}

std::byte* InstructionWork::slice(const InstructionList& list, const Instruction& i,
                                  Role role) const {
  const Index element = role == Role::gradient ? 4 : size_of(plan_.choices.wire());
  return pointer(list, i, role) +
         plan_.choices.slicing.begin(parts_.model.unit(i.unit).slab_elements) * element;
}

const std::int32_t* InstructionWork::batch_part(const InstructionList& list, const Instruction& i,
                                                Index offset) const {
  return reinterpret_cast<const std::int32_t*>(pointer(list, i, Role::batch)) + offset;
}

}  // namespace megatrain
