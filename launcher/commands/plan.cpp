#include "launcher/commands/plan.h"

#include <fmt/format.h>

#include "io/json_writer.h"
#include "launcher/console.h"
#include "launcher/session/banner.h"
#include "launcher/session/checkpoint_saver.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"
#include "launcher/session/team.h"
#include "launcher/session/training.h"

namespace megatrain::launcher {

namespace {

std::string_view name(MemorySpace space) {
  switch (space) {
    case MemorySpace::device:
      return "device";
    case MemorySpace::pinned:
      return "pinned";
    case MemorySpace::store:
      return "store";
  }
  return "?";
}

std::string_view name(Purpose purpose) {
  switch (purpose) {
    case Purpose::train:
      return "train";
    case Purpose::evaluate:
      return "evaluate";
    case Purpose::generate:
      return "generate";
  }
  return "?";
}

/// The allocations of one plan; the store is listed once, with the training plan.
void print_table(Console& console, const Plan& plan, const Model& model) {
  console.line(fmt::format("\n{:<8} {:<44} {:>6} {:>14}", "memory",
                           fmt::format("buffer ({})", name(plan.choices.purpose)), "count",
                           "bytes"));
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::pinned, MemorySpace::store}) {
    if (space == MemorySpace::store && plan.choices.purpose != Purpose::train) continue;
    Index total = 0;
    for (const MemoryRow& row : memory_table(plan, model)) {
      if (row.space != space) continue;
      total += row.bytes;
      console.line(fmt::format("{:<8} {:<44} {:>6} {:>14}", name(space), row.name, row.count,
                               format_bytes(row.bytes)));
    }
    console.line(
        fmt::format("{:<8} {:<44} {:>6} {:>14}", name(space), "total", "", format_bytes(total)));
  }
}

void write_plan(io::JsonWriter& json, const Plan& plan, const Model& model) {
  json.begin_object()
      .member("choices", describe(plan.choices, model))
      .member("device_bytes", plan.device_bytes)
      .member("pinned_bytes", plan.pinned_bytes);
  json.key("memory").begin_array();
  for (const MemoryRow& row : memory_table(plan, model))
    json.begin_object()
        .member("space", name(row.space))
        .member("name", row.name)
        .member("count", row.count)
        .member("bytes", row.bytes)
        .end_object();
  json.end_array().end_object();
}

/// What a checkpoint of this run takes.
SaveEstimate estimate(const RunOptions& options, const Machine& machine, const RunPlans& plans,
                      const Model& model, const Prediction& prediction) {
  const Choices& choices = plans.train.choices;
  const Index taken = plan_bytes(model, choices).store + plans.pinned_bytes();
  const Index bytes = io::state_bytes(model, choices.moments);
  const Index blocks =
      save_blocks(options.checkpoints, machine.host_memory - taken, model, choices.moments);
  return estimate_save(bytes, bytes / io::blocks_of_state(model, choices.moments) * blocks,
                       prediction.rates.disk, prediction.simulation.step_seconds);
}

std::string to_json(const RunOptions& options, const ModelSource& source, const Model& model,
                    const Machine& machine, const RunPlans& plans, const Prediction& prediction) {
  const Choices& choices = plans.train.choices;
  const Simulation& simulation = prediction.simulation;
  io::JsonWriter json(2);
  json.begin_object()
      .member("model", source.name)
      .member("parameters", model.whole_parameter_count())
      .member("device", megatrain::name(machine.kind))
      .member("compute", megatrain::name(machine.compute))
      .member("masters", megatrain::name(choices.master))
      .member("moments", megatrain::name(choices.moments))
      .member("ranks", choices.ranks() * model.partition().count)
      .member("tensor_parallel", model.partition().count)
      .member("shard_group", choices.slicing.count)
      .member("step_tokens", choices.step_tokens() * choices.ranks())
      .member("micro_batch", choices.micro_batch.batch)
      .member("micro_batches", choices.micro_batches)
      .member("waves", choices.waves)
      .member("slots", choices.slots)
      .member("segment", choices.segment)
      .member("device_budget_bytes", machine.device_memory)
      .member("device_reserve_bytes", machine.device_reserve + plans.driver_bytes)
      .member("device_reserve_measured", machine.device != nullptr)
      .member("device_peak_bytes",
              plans.device_bytes() + machine.device_reserve + plans.driver_bytes)
      .member("pinned_peak_bytes", plans.pinned_bytes())
      .member("store_bytes", plan_bytes(model, choices).store)
      .member("predicted_step_seconds", simulation.step_seconds)
      .member("bound_by", megatrain::name(simulation.bound()))
      .member("rates", prediction.rates.source);
  const SaveEstimate save = estimate(options, machine, plans, model, prediction);
  json.key("save")
      .begin_object()
      .member("bytes", save.bytes)
      .member("seconds", save.seconds)
      .member("exposed_seconds", save.exposed)
      .end_object();
  json.key("busy_seconds").begin_object();
  for (std::size_t s = 0; s < kStreams; ++s)
    json.member(megatrain::name(static_cast<StreamId>(s)), simulation.busy[s]);
  json.end_object();
  json.key("train");
  write_plan(json, plans.train, model);
  if (plans.evaluate) {
    json.key("evaluate");
    write_plan(json, *plans.evaluate, model);
  }
  json.key("notes").begin_array();
  for (const auto* notes : {&source.notes, &machine.notes, &plans.notes})
    for (const std::string& note : *notes) json.value(note);
  return json.end_array().end_object().text();
}

/// The first of the ranks that are planned for, as if a shard group were the ranks of a machine.
ModelRanks planned_ranks(const RunOptions& options) {
  constexpr Index kMostRanks = Index{1} << 20;
  const Index ranks = options.ranks.value_or(options.tensor_parallel);
  if (ranks > kMostRanks)
    throw UserError(fmt::format("{} is {}, but can be at most {}",
                                options.ranks ? "--ranks" : "--tensor-parallel", ranks,
                                kMostRanks));
  const auto world = static_cast<int>(ranks);
  return divide({.world = world, .local_size = world}, options.tensor_parallel,
                options.shard_group);
}

}  // namespace

void plan(const RunOptions& options) {
  Console console;
  const ModelSource source = find_model(options.model);
  // What train would refuse, its plan refuses too.
  (void)training_options(options);
  const io::Dataset data = open_data(options, source, console, /*required=*/false);
  const ModelRanks ranks = planned_ranks(options);
  const Model model = part_of(source.config, ranks);
  const Slicing slicing = ranks.data().slicing();
  const Machine machine =
      open_machine(options.machine, model, Presence::planned, StoreContents::training,
                   {.ranks = slicing.count * model.partition().count, .slicing = slicing});
  const RunPlans plans =
      plan_run(options, machine, model, rates_of(options, machine),
               options.key ? std::optional(read_key(*options.key)) : std::nullopt, ranks.data());
  const Prediction prediction = predict(options, machine, plans.train);
  if (options.json) {
    console.line(to_json(options, source, model, machine, plans, prediction));
    return;
  }
  print_banner(console, source, model, machine, plans, prediction);
  print_data(console, data);
  const SaveEstimate save = estimate(options, machine, plans, model, prediction);
  console.line(fmt::format("a checkpoint: {} in {} on a disk of {}/s; a step waits for {} of it",
                           format_bytes(save.bytes), format_seconds(save.seconds),
                           format_bytes(static_cast<Index>(prediction.rates.disk)),
                           format_seconds(save.exposed)));
  print_table(console, plans.train, model);
  if (plans.evaluate) print_table(console, *plans.evaluate, model);
}

}  // namespace megatrain::launcher
