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

Executor::Executor(const Plan& plan, const EngineParts& parts)
    : plan_(plan),
      parts_(parts),
      work_(plan, parts),
      events_(plan.body.instructions.size()),
      tickets_(plan.body.instructions.size(), 0) {
  for (const Instruction& i : plan.body.instructions) names_.push_back(describe(i, plan.units));
  for (const Wait& wait : plan.body.waits) {
    const auto i = static_cast<std::size_t>(wait.instruction);
    if (on_device(plan.body.instructions[i].stream) && !events_[i])
      events_[i] = parts.device.make_event();
  }
  if (plan.choices.graphs)
    graphs_.emplace(parts.streams.of(StreamId::compute), plan.body.instructions.size());
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
  runs_ = true;
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
  require(runs_ || !pending, "an update is pending of the plan that runs");
  for (const std::int32_t n : plan_.epilogue) {
    const auto at = static_cast<std::size_t>(n);
    if (runs_ || !on_device(plan_.body.instructions[at].stream)) issue(plan_.body, at, run);
  }
  parts_.updates.drain();
  parts_.streams.synchronize();
}

void Executor::issue(const InstructionList& list, std::size_t n, const Run& run) {
  const Instruction& i = list.instructions[n];
  if (queue_of(i.stream) != nullptr) return issue_host_work(list, n, run);
  const bool body = &list == &plan_.body;
  const bool idle = Executor::idle(i, run);
  // The prologue runs from idle streams, one stream each: nothing to wait for.
  // What is idle waits for the device all the same, whose waits imply one another; not for readers.
  if (body) wait(list, i, idle);
  track_slots(list, i);
  if (i.stream == StreamId::host) {
    if (run.timing) run.timing->host[n].first = seconds_now();
    work_.enqueue(list, i, run.inputs, run.pending);
    if (run.timing) run.timing->host[n].second = seconds_now();
    return;
  }
  const DeviceRange range(body ? names_[n].c_str() : "prologue");
  Stream& stream = parts_.streams.of(i.stream);
  if (run.timing) stream.record(*run.timing->begin[n]);
  if (!idle) enqueue(list, n, run);
  if (poison_ && i.op == OpCode::release) work_.fill(list, i, Role::weights, 0xFF);
  if (run.timing) stream.record(*run.timing->end[n]);
  if (body && events_[n]) stream.record(*events_[n]);
}

void Executor::enqueue(const InstructionList& list, std::size_t n, const Run& run) {
  const Instruction& i = list.instructions[n];
  const auto work = [&] { work_.enqueue(list, i, run.inputs, run.pending); };
  if (graphs_ && &list == &plan_.body && runs_as_graph(i.op))
    graphs_->run(n, work);
  else
    work();
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

void Executor::wait(const InstructionList& list, const Instruction& i, bool idle) {
  HostQueue* const own = queue_of(i.stream);
  for (const Wait& wait : list.waits_of(i)) {
    const auto on = static_cast<std::size_t>(wait.instruction);
    const StreamId stream = list.instructions[on].stream;
    if (on_device(stream)) {
      if (!runs_ || (wait.bodies_back > 0 && !has_previous_body_)) continue;
      if (on_device(i.stream))
        parts_.streams.of(i.stream).wait(*events_[on]);
      else if (own != nullptr)
        own->enqueue([event = events_[on].get()] { event->synchronize(); });  // a reader's worker
      else
        events_[on]->synchronize();  // collect, by the checker's word
    } else if (HostQueue* const queue = queue_of(stream);
               queue != nullptr && queue != own && !idle) {
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

std::function<void()> Executor::host_work(const InstructionList& list, const Instruction& i,
                                          const Run& run) {
  if (i.op == OpCode::gather) {
    const std::span<const std::int32_t> rows = run.inputs.rows[at(i.wave)];
    return [this, &list, &i, rows] { work_.gather_rows(list, i, rows); };
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
