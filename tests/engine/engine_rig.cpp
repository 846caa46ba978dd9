#include "tests/engine/engine_rig.h"

#include <chrono>
#include <deque>
#include <thread>

#include "core/plan/writers.h"
#include "tests/engine/slow_device.h"

namespace megatrain::testing {

std::unique_ptr<Device> make_rig_device(const RigOptions& options) {
  if (options.device == DeviceKind::cuda) return make_cuda_device({.ordinal = options.ordinal});
  if (options.slow_copies > 0) return make_slow_device(options.device_threads, options.slow_copies);
  return make_cpu_device({.threads = options.device_threads});
}

namespace {

std::unique_ptr<HostStore> make_store(const Model& model, const Choices& choices, Device& device,
                                      ThreadPool& pool) {
  StoreOptions options;
  options.master = choices.master;
  options.moments = choices.moments;
  options.gradient_bytes = choices.gradient_bytes();
  options.slicing = choices.slicing;
  auto store = std::make_unique<HostStore>(model, options, device, pool);
  initialize(*store, 7, pool);
  return store;
}

UpdateRule rig_rule() {
  UpdateRule rule;
  rule.adamw.weight_decay = 0.1;
  rule.lr = 1e-2;
  rule.max_norm = 0.5;
  return rule;
}

Batch make_rig_batch(const Choices& choices, const ModelConfig& config, Index number,
                     const DataShare& share = {}) {
  const Index sample = choices.micro_batch.sequence + 1;
  const auto own = static_cast<std::size_t>(choices.step_sequences() * sample);
  std::vector<std::int32_t> tokens(own * static_cast<std::size_t>(share.ranks));
  std::uint64_t state = 88172645463325252ULL + static_cast<std::uint64_t>(number) * 7919;
  for (std::int32_t& token : tokens) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    token = static_cast<std::int32_t>(state % static_cast<std::uint64_t>(config.vocabulary));
  }
  // Some targets that do not count, unevenly spread.
  for (std::size_t i = 5; i < tokens.size(); i += 17 + i % 5)
    if (i % static_cast<std::size_t>(sample) != 0) tokens[i] = -1;
  Index valid = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    valid += i % static_cast<std::size_t>(sample) != 0 && tokens[i] >= 0 ? 1 : 0;
  Batch batch = make_batch(
      choices, config, std::span(tokens).subspan(own * static_cast<std::size_t>(share.rank), own));
  batch.inputs.scale = token_scale(valid);
  return batch;
}

void append_unit(std::vector<std::byte>& bytes, const Model& model, const HostStore& store,
                 DType wire, Index unit) {
  const auto add = [&](const void* data, Index count) {
    const auto* begin = static_cast<const std::byte*>(data);
    if (begin != nullptr) bytes.insert(bytes.end(), begin, begin + count);
  };
  const Index elements = store.slicing().slice(model.unit(unit).slab_elements);
  add(store.weights(unit), elements * size_of(wire));
  add(store.remainder(unit), elements * 2);
  add(store.exp_avg(unit), elements * size_of(store.moment_type()));
  add(store.exp_avg_sq(unit), elements * size_of(store.moment_type()));
}

Snapshot take_snapshot(const Model& model, const HostStore& store, DType wire) {
  Snapshot all;
  for (Index u = 0; u < model.unit_count(); ++u) append_unit(all.bytes, model, store, wire, u);
  return all;
}

}  // namespace

void CopyingReader::unit(Index unit) noexcept {
  held_.wait(true);
  if (seconds_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
  if (unit == units_) append_unit(bytes_, model_, store_, wire_, unit);  // else: too short, seen
  ++units_;
}

void CopyingReader::let_go() {
  held_ = false;
  held_.notify_all();
}

Rig::Rig(const ModelConfig& config, const Choices& rig_choices, const RigOptions& options,
         StepGroups groups, const DataShare& rig_share)
    : device(make_rig_device(options)),
      ops(std::make_unique<ops::Ops>(ops::make_ops(*device, rig_choices.compute.type))),
      model(config),
      pool(options.update_threads),
      store(make_store(model, rig_choices, *device, pool)),
      choices(rig_choices),
      share(rig_share),
      rule(rig_rule()) {
  EnginePlans plans;
  plans.train = make_plan(model, choices);
  Choices evaluate = choices;
  evaluate.purpose = Purpose::evaluate;
  evaluate.device_states = 0;
  plans.evaluate = make_plan(model, evaluate);
  engine = std::make_unique<Engine>(*device, *ops, model, *store, pool, std::move(plans),
                                    std::move(groups));
  engine->poison_released_slots(options.poison);
  engine->slow_updates(options.slow_updates);
}

Rig::~Rig() = default;

Batch Rig::batch(Index number) const {
  return make_rig_batch(choices, model.config(), number, share);
}

std::unique_ptr<CopyingReader> Rig::reader(double seconds) const {
  return std::make_unique<CopyingReader>(model, *store, choices.wire(), seconds);
}

StepResult Rig::step(Index number, float scale_factor, Trace* trace) {
  Batch made = batch(number);
  made.inputs.scale *= scale_factor;
  return engine->train_step(made.inputs, rule, trace);
}

Snapshot Rig::run(Index steps) {
  std::vector<double> losses;
  std::vector<double> norms;
  for (Index n = 0; n < steps; ++n) {
    const StepResult result = step(n);
    losses.push_back(result.loss_sum);
    norms.push_back(result.decision.norm);
  }
  engine->flush();
  Snapshot all = snapshot();
  all.losses = losses;
  all.norms = norms;
  return all;
}

Snapshot Rig::snapshot() { return take_snapshot(model, *store, choices.wire()); }

Snapshot run_unchecked(const ModelConfig& config, const Plan& plan, Index steps,
                       const RigOptions& options) {
  const auto device = make_rig_device(options);
  const ops::Ops ops = ops::make_ops(*device, plan.choices.compute.type);
  const Model model(config);
  ThreadPool pool(options.update_threads);
  const auto store = make_store(model, plan.choices, *device, pool);
  const Plan* plans[] = {&plan};
  EngineMemory memory(plans, *device, *store, pool);
  DeviceStreams streams(*device);
  std::deque<CopyingReader> readers;
  HostQueue updates;
  HostQueue snapshots;
  StepGroups groups = StepGroups::alone();
  Executor executor(
      plan, {*device, ops, model, *store, memory, streams, updates, snapshots, pool, groups});
  // Also where a broken plan throws, what was begun comes to rest before it loses its parts.
  const auto rest = [&](Executor*) {
    for (CopyingReader& reader : readers) reader.let_go();
    updates.finish();
    snapshots.finish();
  };
  const std::unique_ptr<Executor, decltype(rest)> guard(&executor, rest);
  executor.poison_released_slots(options.poison);
  executor.slow_updates(options.slow_updates);
  executor.start();
  const UpdateRule rule = rig_rule();
  std::vector<double> losses;
  std::vector<double> norms;
  std::optional<PendingUpdate> pending;
  std::int64_t applied = 0;
  for (Index n = 0; n < steps; ++n) {
    const Batch batch = make_rig_batch(plan.choices, config, n);
    // The first reader is late: the second step's updates meet it. The third step's meet nobody,
    // and its reader meets them.
    if (n == 1) readers.back().let_go();
    if (n > 1) snapshots.drain();
    const double seconds = n == 0 ? options.slow_reader : 0;
    CopyingReader& reader = readers.emplace_back(model, *store, plan.choices.wire(), seconds);
    if (seconds > 0) reader.hold();
    executor.run(batch.inputs, pending, &reader);
    pending.reset();
    double sum = 0;
    for (const float loss : executor.losses()) sum += static_cast<double>(loss);
    losses.push_back(sum);
    const ClipDecision decision = clip(executor.squared_norms(), rule.max_norm);
    norms.push_back(decision.norm);
    if (decision.apply) pending = PendingUpdate{rule.adamw, rule.lr, decision.factor, ++applied};
  }
  executor.flush(pending);
  snapshots.drain();
  Snapshot all = take_snapshot(model, *store, plan.choices.wire());
  for (const CopyingReader& reader : readers)
    all.handed_over.insert(all.handed_over.end(), reader.bytes().begin(), reader.bytes().end());
  all.losses = losses;
  all.norms = norms;
  return all;
}

}  // namespace megatrain::testing
