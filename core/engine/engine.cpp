#include "core/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/bfloat16.h"
#include "core/plan/checker.h"

namespace megatrain {

namespace {

std::size_t index(Purpose purpose) { return static_cast<std::size_t>(purpose); }

std::vector<const Plan*> present(const EnginePlans& plans) {
  std::vector<const Plan*> all;
  for (const auto* plan : {&plans.train, &plans.evaluate, &plans.generate})
    if (*plan) all.push_back(&**plan);
  return all;
}

/// A plan, the ranks that it is for, and what the store holds go together.
void require_groups(const Choices& choices, const StepGroups& groups, const Model& model,
                    const HostStore& store) {
  const Slicing& slicing = choices.slicing;
  require(store.slicing() == slicing, "the store holds the slices that the plan streams");
  require(choices.purpose != Purpose::train || store.moment_type() == choices.moments,
          "the store keeps moments as the plan says");
  for (const Communicator* group : {groups.gather.get(), groups.scatter.get()})
    require(group->size() == slicing.count && group->rank() == slicing.index,
            "the plan's shard group is that of the communicators");
  require(groups.parts->partition() == model.partition() &&
              store.model().partition() == model.partition(),
          "the model and the store are the part that the group says");
  require(groups.replicas->size() == choices.replicas,
          "the plan's replicas are those of the communicators");
}

void require_graphs(const Choices& choices, const Device& device) {
  if (choices.graphs && !device.info().graphs)
    throw UserError(fmt::format(
        "the plan launches blocks as graphs, which the device '{}' cannot; leave --force graphs=on "
        "out",
        device.info().name));
}

/// Asks for every kernel choice before anything is allocated: a request is met or refused.
void require_attention(const Plan& plan, const ops::Ops& ops, const Model& model) {
  const ModelConfig& config = model.part_config();
  for (Index layer = 0; layer < config.layers; ++layer) {
    ops::AttentionShape shape;
    shape.batch = plan.choices.micro_batch.batch;
    shape.sequence = plan.choices.micro_batch.sequence;
    shape.query_heads = config.heads;
    shape.kv_heads = config.kv_heads;
    shape.head_dim = config.head_dim;
    shape.window = config.window(layer);
    shape.scale = 1;
    shape.type = plan.choices.compute.type;
    const std::string refusal = ops.attention_refusal(shape, plan.choices.compute.attention);
    if (!refusal.empty())
      throw UserError(
          fmt::format("the attention backend cannot serve this model: {}. Another one "
                      "can be chosen with --force attention=own",
                      refusal));
  }
}

}  // namespace

Engine::Engine(Device& device, const ops::Ops& ops, const Model& model, HostStore& store,
               ThreadPool& update_pool, EnginePlans plans, StepGroups groups)
    : plans_(std::move(plans)),
      groups_(std::move(groups)),
      memory_(present(plans_), device, store, update_pool),
      streams_(device) {
  require(!plans_.train || store.contents() == StoreContents::training,
          "a training plan has a store with gradients and moments");
  const EngineParts parts{device,   ops,      model,      store,       memory_,
                          streams_, updates_, snapshots_, update_pool, groups_};
  for (const Plan* plan : present(plans_)) {
    require_groups(plan->choices, groups_, model, store);
    require_checked(*plan);
    require_graphs(plan->choices, device);
    require_attention(*plan, ops, model);
    executors_[index(plan->choices.purpose)] = std::make_unique<Executor>(*plan, parts);
  }
}

Engine::~Engine() {
  // The workers wait for one another and use the executors: both come to rest before either goes.
  updates_.finish();
  snapshots_.finish();
}

Executor& Engine::activate(Purpose purpose) {
  Executor* executor = executors_[index(purpose)].get();
  require(executor != nullptr, "the engine has a plan for this purpose");
  if (active_ != executor) {
    if (active_ != nullptr) active_->leave();
    executor->start();
    active_ = executor;
  }
  return *executor;
}

StepResult Engine::train_step(const StepInputs& inputs, const UpdateRule& rule, Trace* trace) {
  Executor& executor = activate(Purpose::train);
  const bool updates = pending_ && executor.plan().choices.device_states > 0;
  const bool comes_down = reader_ != nullptr;
  run(executor, inputs, pending_, std::exchange(reader_, nullptr), trace);
  pending_.reset();
  device_ahead_ = (device_ahead_ || updates) && !comes_down;

  StepResult result;
  for (const float loss : executor.losses()) result.loss_sum += static_cast<double>(loss);
  double squared_norm = 0;
  for (const double partial : executor.squared_norms()) squared_norm += partial;
  groups_.sum_step(result.loss_sum, squared_norm);
  result.decision = clip({&squared_norm, 1}, rule.max_norm);
  if (result.decision.apply)
    pending_ = PendingUpdate{rule.adamw, rule.lr, result.decision.factor, ++applied_steps_};
  return result;
}

void Engine::run(Executor& executor, const StepInputs& inputs,
                 const std::optional<PendingUpdate>& pending, StateReader* reader, Trace* trace) {
  try {
    executor.run(inputs, pending, reader, trace);
    // What was waited for may be what a collective that ended early left behind.
    groups_.check();
  } catch (const std::exception& failure) {
    // The others would wait for this rank until their time is over.
    groups_.abort(failure.what());
    throw;
  }
}

double Engine::sum_over_ranks(double value) {
  groups_.sum({&value, 1});
  return value;
}

void Engine::flush() {
  if (!pending_ && reader_ == nullptr && !device_ahead_) return;
  Executor* executor = executors_[index(Purpose::train)].get();
  require(executor != nullptr, "what is pending comes from a training plan");
  executor->flush(pending_, std::exchange(reader_, nullptr));
  pending_.reset();
  device_ahead_ = false;
}

void Engine::snapshot(StateReader& reader) {
  require(executors_[index(Purpose::train)] != nullptr, "a state that is read is one of training");
  require(reader_ == nullptr, "one reader at a time asks for the state after a step");
  reader_ = &reader;
}

void Engine::finish_snapshot() {
  if (reader_ != nullptr) flush();
  snapshots_.drain();
}

std::span<const float> Engine::evaluate(const StepInputs& inputs) {
  flush();
  Executor& executor = activate(Purpose::evaluate);
  run(executor, inputs);
  return executor.losses();
}

std::span<const float> Engine::logits(const StepInputs& inputs) {
  flush();
  Executor& executor = activate(Purpose::generate);
  run(executor, inputs);
  const std::span<const std::byte> raw = executor.logits();
  if (executor.plan().choices.compute.type == DType::f32) {
    logits_.resize(raw.size() / sizeof(float));
    std::memcpy(logits_.data(), raw.data(), raw.size());
  } else {
    logits_.resize(raw.size() / sizeof(bfloat16));
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      bfloat16 value{};
      std::memcpy(&value, raw.data() + i * sizeof(value), sizeof(value));
      logits_[i] = to_float(value);
    }
  }
  return logits_;
}

const Plan& Engine::plan(Purpose purpose) const {
  const auto& executor = executors_[index(purpose)];
  require(executor != nullptr, "the engine has a plan for this purpose");
  return executor->plan();
}

double Engine::seconds_held() const {
  const auto& train = executors_[index(Purpose::train)];
  return train ? train->seconds_held() : 0;
}

Index Engine::graphs() const {
  const auto& train = executors_[index(Purpose::train)];
  return train ? train->graphs() : 0;
}

std::size_t Engine::most_queued() const {
  return std::max(updates_.most_queued(), snapshots_.most_queued());
}

void Engine::slow_updates(double seconds) {
  for (const auto& executor : executors_)
    if (executor) executor->slow_updates(seconds);
}

void Engine::poison_released_slots(bool on) {
  for (const auto& executor : executors_)
    if (executor) executor->poison_released_slots(on);
}

}  // namespace megatrain
