#include "launcher/session/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/plan_memory.h"
#include "core/plan/writers.h"
#include "launcher/session/training.h"

namespace megatrain::launcher {

namespace {

/// Sequences of a step on each rank. @throws UserError naming the nearest sizes that work
Index step_sequences(const RunOptions& options, Index ranks) {
  const Index unit = checked_mul(options.seq_len, ranks);
  const Index below = options.batch_tokens / unit * unit;
  if (below == options.batch_tokens) return options.batch_tokens / unit;
  const std::string nearest =
      below == 0 ? std::to_string(unit) : fmt::format("{} or {}", below, below + unit);
  throw UserError(fmt::format(
      "--batch-tokens {} is not a multiple of --seq-len {}{}; the nearest that work: {}",
      options.batch_tokens, options.seq_len,
      ranks > 1 ? fmt::format(" on each of {} ranks", ranks) : "", nearest));
}

/// Adds a choice; the same one twice must say the same.
void add_forced(NamedValues& forced, const std::string& name, const std::string& value) {
  const std::string* earlier = find_value(forced, name);
  if (earlier == nullptr)
    forced.emplace_back(name, value);
  else if (*earlier != value)
    throw UserError(fmt::format("{} is asked to be {} and also {} (by an option or --force)", name,
                                *earlier, value));
}

NamedValues forced_by(const RunOptions& options) {
  NamedValues forced;
  const auto add = [&](const char* name, const std::optional<Index>& value) {
    if (value) add_forced(forced, name, std::to_string(*value));
  };
  add("micro-batch", options.micro_batch);
  add("slots", options.slots);
  add("segment", options.segment);
  for (const std::string& text : options.force) {
    const auto equals = text.find('=');
    if (equals == std::string::npos)
      throw UserError(fmt::format("--force {}: must be CHOICE=VALUE, as in slots=3", text));
    add_forced(forced, text.substr(0, equals), text.substr(equals + 1));
  }
  return forced;
}

PlanRequest make_request(const Machine& machine, const Model& model, Index sequence,
                         Index sequences, bool deterministic, std::vector<std::string>& notes) {
  PlanRequest request;
  request.sequence = sequence;
  request.sequences = sequences;
  request.compute.type = machine.compute;
  std::string why;
  request.compute.attention = choose_attention(machine, model, sequence, deterministic, why);
  if (!why.empty())
    notes.push_back(
        fmt::format("attention by '{}' kernels: {}", ops::name(request.compute.attention), why));
  request.master = machine.master;
  request.moments = machine.moments;
  request.device_memory = machine.device_memory;
  request.device_reserve = machine.device_reserve;
  request.host_memory = machine.host_memory;
  request.page_tables = machine.kind == DeviceKind::cuda;
  request.device_graphs = !machine.device || machine.device->info().graphs;
  return request;
}

/// Device memory that comes with a plan and is not in its arena.
Index driver_bytes(const PlanRequest& request, const Plan& plan, const Model& model) {
  if (!request.page_tables) return 0;
  return page_table_bytes(plan_bytes(model, plan.choices).store + plan.pinned_bytes);
}

/// The same step's sequences, forward only. It shall not make the arena larger; where it must, it
/// may take the whole budget.
Plan plan_evaluation(const PlanRequest& train, const Plan& train_plan, const Model& model) {
  PlanRequest request = train;
  request.purpose = Purpose::evaluate;
  std::erase_if(request.forced, [](const auto& choice) {
    return choice.first != "attention" && choice.first != "head-chunk";
  });
  request.device_memory =
      train_plan.device_bytes + train.device_reserve + driver_bytes(train, train_plan, model);
  try {
    return make_plan(model, choose(model, request));
  } catch (const UserError&) {
    request.device_memory = train.device_memory;
    return make_plan(model, choose(model, request));
  }
}

/// choose(), with what to do about a host memory that is too small.
Choices choose_for(const MachineOptions& options, const Machine& machine, const Model& model,
                   const PlanRequest& request, StoreContents contents) {
  try {
    return choose(model, request);
  } catch (const HostMemoryRefusal& refusal) {
    const std::string works = ceil_to_mebibytes(
        sufficient_host_memory(options, machine, model, refusal.smallest(), contents));
    std::string instead = contents == StoreContents::training
                              ? "take fewer tokens a step or a smaller model"
                              : "take a smaller model";
    if (contents == StoreContents::training && request.moments == DType::f32)
      instead += ", or --moments bf16, 4 bytes a parameter less";
    if (contents == StoreContents::training && request.master == MasterFormat::split)
      instead += ", or --masters bf16, 2 bytes less";
    throw UserError(
        options.host_memory
            ? fmt::format("{}. --host-memory {} works; or {}", refusal.what(), works, instead)
            : fmt::format("{}. A twentieth of what is free stays so. --host-memory {} works where "
                          "that much is free; or {}",
                          refusal.what(), works, instead));
  }
}

void require_backend(const Choices& choices, bool deterministic) {
  if (deterministic && choices.compute.attention == ops::AttentionBackend::cudnn)
    throw UserError(
        "--deterministic contradicts --force attention=cudnn, whose backward pass is not; take "
        "cudnn-deterministic or own");
}

}  // namespace

Index RunPlans::device_bytes() const {
  return std::max(train.device_bytes, evaluate ? evaluate->device_bytes : 0);
}

Index RunPlans::pinned_bytes() const {
  return std::max(train.pinned_bytes, evaluate ? evaluate->pinned_bytes : 0);
}

RunPlans plan_run(const RunOptions& options, const Machine& machine, const Model& model,
                  const Rates& rates, const std::optional<SavedKey>& key, const DataRanks& ranks) {
  RunPlans plans;
  PlanRequest request =
      make_request(machine, model, options.seq_len, step_sequences(options, ranks.share().ranks),
                   options.machine.deterministic, plans.notes);
  request.rates = rates;
  request.slicing = ranks.slicing();
  request.replicas = ranks.replicas();
  request.forced = forced_by(options);
  if (key) {
    const std::string world = world_text(request.slicing, request.replicas);
    key->require_world(world, model.partition().count);
    key->require_choices(request.forced);
    for (const auto& [name, value] : key->forced()) add_forced(request.forced, name, value);
  }
  const Choices choices =
      choose_for(options.machine, machine, model, request, StoreContents::training);
  require_backend(choices, options.machine.deterministic);
  require_attention(machine, model, options.seq_len, choices.compute.attention);
  plans.key = numerics_key(choices, model, machine.numerics);
  if (key) key->require_equal(plans.key, !machine.numerics.empty());
  plans.train = make_plan(model, choices);
  plans.driver_bytes = driver_bytes(request, plans.train, model);
  if (evaluates(options)) plans.evaluate = plan_evaluation(request, plans.train, model);
  const Index reach = model.config().max_positions;
  if (options.seq_len > reach)
    plans.notes.push_back(
        fmt::format("sequences of {} tokens are longer than the {} positions the model is made for",
                    options.seq_len, reach));
  return plans;
}

Plan plan_generation(const MachineOptions& options, const Machine& machine, const Model& model,
                     Index context) {
  std::vector<std::string> notes;
  PlanRequest request = make_request(machine, model, context, 1, options.deterministic, notes);
  request.purpose = Purpose::generate;
  return make_plan(model, choose_for(options, machine, model, request, StoreContents::weights));
}

Rates rates_of(const RunOptions& options, const Machine& machine) {
  return options.rates ? read_rates(*options.rates) : assumed_rates(machine.kind, machine.compute);
}

std::string describe(const Choices& c, const Model& model) {
  const Index layers = model.config().layers;
  const auto kept = [&](Keep level) { return std::ranges::count(c.keep, level); };
  std::string text =
      fmt::format("{} micro-batch{} of {} x {} tokens in {} wave{}, {} slots", c.micro_batches,
                  c.micro_batches == 1 ? "" : "es", c.micro_batch.batch, c.micro_batch.sequence,
                  c.waves, c.waves == 1 ? "" : "s", c.slots);
  if (c.purpose == Purpose::train) {
    text += fmt::format(", segment {}, {} of {} boundaries on the device", c.segment,
                        c.device_boundaries, ceil_div(layers, c.segment));
    if (!c.keep.empty())
      text += fmt::format(", intermediates kept by {} (all) and {} (attention) of {} blocks",
                          kept(Keep::all), kept(Keep::attention), layers);
    if (const Index spilled = std::ranges::count(c.kept_on_host, true); spilled > 0)
      text += fmt::format(" (by {} from block {} on the host)", spilled,
                          std::ranges::find(c.kept_on_host, true) - c.kept_on_host.begin());
  }
  if (c.resident > 0) text += fmt::format(", {} resident blocks", c.resident);
  if (c.device_states > 0)
    text += fmt::format(", {} of {} units updated on the device", c.device_states, layers + 2);
  if (c.graphs) text += ", blocks launched as graphs";
  text += fmt::format(", embedding by {}, attention {}, head chunk {}",
                      c.embedding == EmbeddingMode::table ? "table" : "rows",
                      ops::name(c.compute.attention), c.compute.head_chunk);
  return text;
}

}  // namespace megatrain::launcher
