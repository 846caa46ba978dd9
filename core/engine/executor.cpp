#include "core/engine/executor.h"

#include "core/device/range.h"
#include "core/optim/unit_update.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace megatrain {

namespace {

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Begin and end of every instruction of a traced body.
struct Executor::Timing {
  explicit Timing(const InstructionList& list, Device& device)
      : begin(list.instructions.size()),
        end(list.instructions.size()),
        host(list.instructions.size()) {
    for (std::size_t i = 0; i < list.instructions.size(); ++i)
      if (on_device(list.instructions[i].stream)) {
        begin[i] = device.make_timed_event();
        end[i] = device.make_timed_event();
      }
    base = device.make_timed_event();
  }
  std::vector<std::unique_ptr<TimedEvent>> begin, end;
  std::vector<std::pair<double, double>> host;  ///< seconds, for host instructions
  std::unique_ptr<TimedEvent> base;             ///< recorded on an idle stream at base_seconds
  double base_seconds = 0;
};

struct Executor::Run {
  const StepInputs& inputs;
  std::optional<PendingUpdate> pending = {};
  StateReader* reader = nullptr;
  /// The host store is to hold the states afterwards, also those that live on the device.
  bool states_down = false;
  /// Shared with the workers: what they do may outlast a run that fails.
  std::shared_ptr<Timing> timing = nullptr;
};

DeviceStreams::DeviceStreams(Device& device) {
  static constexpr std::array<std::string_view, kDeviceStreams> kNames = {
      "compute", "host to device", "device to host", "spill", "gather", "scatter"};
  for (std::size_t s = 0; s < kDeviceStreams; ++s) streams_[s] = device.make_stream(kNames[s]);
}

void DeviceStreams::synchronize() {
  for (const auto& stream : streams_) stream->synchronize();
}

Executor::Executor(const Plan& plan, const EngineParts& parts)
    : plan_(plan),
      parts_(parts),
      embedding_(parts.model, plan.choices.compute, plan.choices.micro_batch),
      head_(parts.model, plan.choices.compute, plan.choices.micro_batch),
      events_(plan.body.instructions.size()),
      tickets_(plan.body.instructions.size(), 0) {
  for (Index b = 0; b < parts.model.config().layers; ++b)
    blocks_.emplace_back(parts.model, b + 1, plan.choices.compute, plan.choices.micro_batch);
  for (const Instruction& i : plan.body.instructions) names_.push_back(describe(i, plan.units));
  for (const Wait& wait : plan.body.waits) {
    const auto i = static_cast<std::size_t>(wait.instruction);
    if (on_device(plan.body.instructions[i].stream) && !events_[i])
      events_[i] = parts.device.make_event();
  }
}

Executor::~Executor() = default;

void Executor::start() {
  parts_.updates.drain();
  parts_.streams.synchronize();
  Index bytes = 0;
  if (std::byte* constants = named("rotary tables (host)", bytes)) {
    const RopeTables tables =
        rope_tables(parts_.model.config(), plan_.choices.micro_batch.sequence);
    const std::size_t half = tables.cosine.size() * sizeof(float);
    std::memcpy(constants, tables.cosine.data(), half);
    std::memcpy(constants + half, tables.sine.data(), half);
  }
  slots_ = {};
  const StepInputs nothing;
  for (std::size_t n = 0; n < plan_.prologue.instructions.size(); ++n)
    issue(plan_.prologue, n, {.inputs = nothing});
  // The prologue has no events of its own: everything after it starts from idle streams.
  parts_.streams.synchronize();
  has_previous_body_ = false;
}

void Executor::run(const StepInputs& inputs, const std::optional<PendingUpdate>& pending,
                   StateReader* reader, Trace* trace) {
  Run run{inputs, pending, reader, reader != nullptr, nullptr};
  if (trace != nullptr) {
    run.timing = std::make_shared<Timing>(plan_.body, parts_.device);
    run.timing->base_seconds = seconds_now();
    parts_.streams.of(StreamId::compute).record(*run.timing->base);
  }
  for (std::size_t n = 0; n < plan_.body.instructions.size(); ++n) issue(plan_.body, n, run);
  has_previous_body_ = true;
  require(slots_.all_empty(), "every slot is released by the end of a body");
  if (trace == nullptr) return;
  parts_.streams.synchronize();
  parts_.snapshots.drain();
  const Timing& timing = *run.timing;
  for (std::size_t i = 0; i < plan_.body.instructions.size(); ++i) {
    const Instruction& instruction = plan_.body.instructions[i];
    TraceSpan span{names_[i], instruction.stream, 0, 0};
    if (on_device(instruction.stream)) {
      span.begin = timing.begin[i]->seconds_since(*timing.base);
      span.end = timing.end[i]->seconds_since(*timing.base);
    } else {
      span.begin = timing.host[i].first - timing.base_seconds;
      span.end = timing.host[i].second - timing.base_seconds;
    }
    trace->spans.push_back(std::move(span));
  }
}

void Executor::flush(const std::optional<PendingUpdate>& pending, StateReader* reader) {
  const StepInputs nothing;
  const Run run{nothing, pending, reader, true, nullptr};
  for (const std::int32_t n : plan_.epilogue) issue(plan_.body, static_cast<std::size_t>(n), run);
  parts_.updates.drain();
  parts_.streams.synchronize();
}

void Executor::issue(const InstructionList& list, std::size_t n, const Run& run) {
  const Instruction& i = list.instructions[n];
  if (queue_of(i.stream) != nullptr) return issue_host_work(list, n, run);
  const bool body = &list == &plan_.body;
  const bool idle = Executor::idle(i, run);
  // The prologue runs from idle streams, one stream each: nothing to wait for.
  if (body && !idle) wait(list, i);
  track_slots(list, i);
  if (i.stream == StreamId::host) {
    if (run.timing) run.timing->host[n].first = seconds_now();
    execute(list, i, run);
    if (run.timing) run.timing->host[n].second = seconds_now();
    return;
  }
  const DeviceRange range(body ? names_[n].c_str() : "prologue");
  Stream& stream = parts_.streams.of(i.stream);
  if (run.timing) stream.record(*run.timing->begin[n]);
  if (!idle) execute(list, i, run);
  if (run.timing) stream.record(*run.timing->end[n]);
  if (body && events_[n]) stream.record(*events_[n]);
}

void Executor::issue_host_work(const InstructionList& list, std::size_t n, const Run& run) {
  const Instruction& i = list.instructions[n];
  HostQueue& queue = *queue_of(i.stream);
  std::function<void()> work = host_work(list, i, run);
  if (!work) {
    // What touches nothing waits for nothing: with nothing pending, no update is held up by a
    // reader. Whoever waits for it waits for what came before it on its stream.
    tickets_[n] = queue.issued();
    if (run.timing) run.timing->host[n].first = run.timing->host[n].second = seconds_now();
    return;
  }
  wait(list, i);
  if (run.timing)
    work = [inner = std::move(work), timing = run.timing, n] {
      timing->host[n].first = seconds_now();
      inner();
      timing->host[n].second = seconds_now();
    };
  tickets_[n] = queue.enqueue(std::move(work));
}

HostQueue* Executor::queue_of(StreamId stream) const {
  if (stream == StreamId::update) return &parts_.updates;
  if (stream == StreamId::snapshot) return &parts_.snapshots;
  return nullptr;
}

void Executor::wait(const InstructionList& list, const Instruction& i) {
  HostQueue* const own = queue_of(i.stream);
  for (const Wait& wait : list.waits_of(i)) {
    const auto on = static_cast<std::size_t>(wait.instruction);
    const StreamId stream = list.instructions[on].stream;
    if (on_device(stream)) {
      if (wait.bodies_back > 0 && !has_previous_body_) continue;
      if (on_device(i.stream))
        parts_.streams.of(i.stream).wait(*events_[on]);
      else if (own != nullptr)
        own->enqueue([event = events_[on].get()] { event->synchronize(); });  // a reader's worker
      else
        events_[on]->synchronize();  // collect, by the checker's word
    } else if (HostQueue* const queue = queue_of(stream); queue != nullptr && queue != own) {
      const HostQueue::Ticket ticket = tickets_[on];
      if (own == nullptr)
        queue->wait(ticket);  // the issuing thread waits for a counter, a unit ahead of the device
      else if (!queue->done(ticket))
        own->enqueue([this, queue, ticket] {
          const double begin = seconds_now();
          queue->wait(ticket);
          seconds_held_ += seconds_now() - begin;
        });
    }
    // Work of the host stream is done when it is issued.
  }
}

void Executor::track_slots(const InstructionList& list, const Instruction& i) {
  for (const Role role : {Role::weights, Role::table}) {
    const BufferId slot = list.find(i, role);
    if (slot < 0) continue;
    const std::int32_t unit = role == Role::table ? 0 : i.unit;
    if (i.op == OpCode::fetch || i.op == OpCode::state_up) {
      slots_.fetch(slot, unit);
    } else if (i.op == OpCode::device_update) {
      slots_.update(slot, unit);
    } else if (i.op == OpCode::release) {
      slots_.release(slot, unit);
    } else {
      slots_.ready(slot, unit);
      if (i.op != OpCode::all_gather) slots_.use(slot, unit);
    }
  }
}

bool Executor::idle(const Instruction& i, const Run& run) {
  return (i.op == OpCode::device_update && !run.pending) ||
         (i.op == OpCode::state_down && !run.states_down);
}

void Executor::execute(const InstructionList& list, const Instruction& i, const Run& run) {
  const StepInputs& inputs = run.inputs;
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
      return device_update(list, i, *run.pending);
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
    case OpCode::zero: {
      const Buffer& buffer = plan_.buffer(list.buffer(i, Role::destination));
      return parts_.streams.of(i.stream).fill(pointer(list, i, Role::destination), 0, buffer.bytes);
    }
    case OpCode::reduce:
      return reduce(list, i);
    case OpCode::offload:
      return offload(list, i);
    case OpCode::release:
      if (poison_) {
        const Buffer& buffer = plan_.buffer(list.buffer(i, Role::weights));
        parts_.streams.of(i.stream).fill(pointer(list, i, Role::weights), 0xFF, buffer.bytes);
      }
      return;
    case OpCode::collect:
      return;  // its waits are the work
    case OpCode::update:
    case OpCode::gather:
    case OpCode::snapshot:
      break;
  }
  throw LogicError("internal error: instruction on the wrong stream");
}

std::function<void()> Executor::host_work(const InstructionList& list, const Instruction& i,
                                          const Run& run) {
  if (i.op == OpCode::gather) {
    const std::span<const std::int32_t> rows = run.inputs.rows[at(i.wave)];
    return [this, &list, &i, rows] { gather_rows(list, i, rows); };
  }
  if (i.op == OpCode::snapshot) {
    if (run.reader == nullptr) return {};
    return [reader = run.reader, unit = i.unit] { reader->unit(unit); };
  }
  if (!run.pending) return {};
  return [this, unit = i.unit, update = *run.pending] {
    if (slow_updates_ > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(slow_updates_));
    update_unit(parts_.store, unit, update, plan_.choices.wire(), parts_.update_pool);
  };
}

void Executor::gather_rows(const InstructionList& list, const Instruction& i,
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

void Executor::copy(const InstructionList& list, const Instruction& i, Role to, Role from) {
  const Buffer& destination = plan_.buffer(list.buffer(i, to));
  const Buffer& source = plan_.buffer(list.buffer(i, from));
  parts_.streams.of(i.stream).copy(pointer(list, i, to), pointer(list, i, from),
                                   std::min(destination.bytes, source.bytes));
}

void Executor::copy_up(const InstructionList& list, const Instruction& i, Role to, Role from) {
  parts_.streams.of(i.stream).copy(slice(list, i, to), pointer(list, i, from),
                                   plan_.buffer(list.buffer(i, from)).bytes);
}

void Executor::copy_down(const InstructionList& list, const Instruction& i, Role to, Role from) {
  parts_.streams.of(i.stream).copy(pointer(list, i, to), slice(list, i, from),
                                   plan_.buffer(list.buffer(i, to)).bytes);
}

void Executor::communicate(const InstructionList& list, const Instruction& i) {
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

void Executor::sum_parts(const InstructionList& list, const Instruction& i) {
  auto* gradient = reinterpret_cast<float*>(pointer(list, i, Role::gradient));
  for (const ParamDesc& param : parts_.model.unit(i.unit).params)
    if (param.shard.sum_gradient)
      parts_.groups.parts->sum(parts_.streams.of(i.stream), gradient + param.offset,
                               param.elements(), DType::f32);
}

ops::UncountedRuns Executor::uncounted(const Instruction& i) const {
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

void Executor::reduce(const InstructionList& list, const Instruction& i) {
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

UnitStates Executor::unit_states(const InstructionList& list, const Instruction& i) const {
  return UnitStates::of(parts_.store, i.unit, slice(list, i, Role::weights),
                        pointer(list, i, Role::device_state));
}

void Executor::device_update(const InstructionList& list, const Instruction& i,
                             const PendingUpdate& pending) {
  AdamWSlice states = unit_states(list, i).device;
  states.gradient = pointer(list, i, Role::wire);
  states.gradient_type = plan_.choices.wire();
  const Unit& unit = parts_.model.unit(i.unit);
  update_unit(parts_.ops, parts_.streams.of(i.stream), unit,
              plan_.choices.slicing.elements(unit.slab_elements), states, pending);
}

void Executor::offload(const InstructionList& list, const Instruction& i) {
  Stream& stream = parts_.streams.of(i.stream);
  const Index element = size_of(plan_.choices.wire());
  if (const std::byte* wire = pointer(list, i, Role::wire))
    stream.copy(pointer(list, i, Role::host_gradient) + i.first * element, wire, i.count * element);
  const Index first = i.first / ops::kNormChunk * 8;
  stream.copy(pointer(list, i, Role::host_partials) + first,
              pointer(list, i, Role::partials) + first, ops::norm_partials(i.count) * 8);
}

void Executor::run_block(const InstructionList& list, const Instruction& i) {
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

void Executor::run_embedding(const InstructionList& list, const Instruction& i,
                             const StepInputs& inputs) {
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

void Executor::run_head(const InstructionList& list, const Instruction& i,
                        const StepInputs& inputs) {
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

std::byte* Executor::pointer(const InstructionList& list, const Instruction& i, Role role) const {
  const BufferId id = list.find(i, role);
  return id < 0 ? nullptr : parts_.memory.locate(plan_.buffer(id), role);
}

std::byte* Executor::slice(const InstructionList& list, const Instruction& i, Role role) const {
  const Index element = role == Role::gradient ? 4 : size_of(plan_.choices.wire());
  return pointer(list, i, role) +
         plan_.choices.slicing.begin(parts_.model.unit(i.unit).slab_elements) * element;
}

const std::int32_t* Executor::batch_part(const InstructionList& list, const Instruction& i,
                                         Index offset) const {
  return reinterpret_cast<const std::int32_t*>(pointer(list, i, Role::batch)) + offset;
}

std::byte* Executor::named(std::string_view name, Index& bytes) const {
  for (const Buffer& buffer : plan_.buffers)
    if (buffer.name == name) {
      bytes = buffer.bytes;
      return parts_.memory.locate(buffer, Role::source);
    }
  return nullptr;
}

std::span<const float> Executor::losses() const {
  Index bytes = 0;
  const std::byte* data = named("losses (host)", bytes);
  return {reinterpret_cast<const float*>(data), at(plan_.choices.step_tokens())};
}

std::span<const double> Executor::squared_norms() const {
  Index bytes = 0;
  const std::byte* data = named("squared-norm partials (host)", bytes);
  Index count = 0;
  for (const Unit& unit : parts_.model.units())
    count += ops::norm_partials(plan_.choices.slicing.slice(unit.slab_elements));
  return {reinterpret_cast<const double*>(data), at(count)};
}

std::span<const std::byte> Executor::logits() const {
  Index bytes = 0;
  const std::byte* data = named("logits (host)", bytes);
  return {data, at(plan_.choices.micro_batch.batch * parts_.model.config().vocabulary *
                   size_of(plan_.choices.compute.type))};
}

}  // namespace megatrain
