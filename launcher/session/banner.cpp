#include "launcher/session/banner.h"

#include <fmt/format.h>

#include "core/optim/adamw.h"
#include "core/plan/plan_memory.h"

namespace megatrain::launcher {

Prediction predict(const RunOptions& options, const Machine& machine, const Plan& plan) {
  const Rates rates = rates_of(options, machine);
  return {rates, simulate(plan, rates)};
}

std::string bound_text(const Simulation& simulation) {
  switch (simulation.bound()) {
    case StreamId::compute:
      return "computing";
    case StreamId::fetch:
      return "copies to the device";
    case StreamId::offload:
      return "copies to the host";
    case StreamId::spill:
      return "spilled boundaries";
    case StreamId::gather:
      return "gathering weights from other ranks";
    case StreamId::scatter:
      return "summing gradients over ranks";
    case StreamId::update:
      return "the optimizer on the host";
    case StreamId::host:
      return "the issuing thread";
    case StreamId::snapshot:
      return "the reader of the state";
  }
  return "?";
}

std::string states_text(MasterFormat master, DType moments) {
  const auto rounded = [](bool bf16) { return bf16 ? ", rounded by chance" : ""; };
  return fmt::format("masters in {}{}; AdamW's moments in {}{}",
                     master == MasterFormat::split ? "split fp32" : name(master),
                     rounded(master == MasterFormat::bf16), name(moments),
                     rounded(moments == DType::bf16));
}

void print_banner(Console& console, const ModelSource& source, const Model& model,
                  const Machine& machine, const RunPlans& plans, const Prediction& prediction) {
  const ModelConfig& c = source.config;
  const Choices& choices = plans.train.choices;
  console.line(fmt::format("model: {} ({}, {} blocks, hidden {}, {} parameters)", source.name,
                           c.model_type, c.layers, c.hidden, model.whole_parameter_count()));
  if (model.partition().count > 1)
    console.line(
        fmt::format("  in {} parts, which compute each layer together", model.partition().count));
  for (const std::string& note : source.notes) console.line("  " + note);
  console.line(fmt::format("device: {} ({}), {}; computes in {}", machine.name, name(machine.kind),
                           describe(machine.threads), name(machine.compute)));
  for (const std::string& note : machine.notes) console.line("  " + note);
  console.line(fmt::format("states: {}", states_text(choices.master, choices.moments)));
  console.line(fmt::format("plan: {}", describe(choices, model)));
  for (const std::string& note : plans.notes) console.line("  " + note);
  const Index store = plan_bytes(model, choices).store;
  const Index outside = machine.device_reserve + plans.driver_bytes;
  const std::string reserve =
      outside > 0 ? fmt::format(" ({} in reserve)", format_bytes(outside)) : "";
  console.line(fmt::format("memory: device {} of {}{}, pinned {}, host store {}",
                           format_bytes(plans.device_bytes() + outside),
                           format_bytes(machine.device_memory), reserve,
                           format_bytes(plans.pinned_bytes()), format_bytes(store)));
  console.line(fmt::format("predicted step: {}, bound by {} (rates: {})",
                           precise_seconds(prediction.simulation.step_seconds),
                           bound_text(prediction.simulation), prediction.rates.source));
}

void print_store(Console& console, const HostStore& store) {
  const ArenaSeconds seconds = store.seconds();
  console.line(fmt::format(
      "host store: {}, first touch {:.2f} s, registered in {:.2f} s (together {:.2f} x the touch); "
      "updated by kernels for {}",
      format_bytes(store.bytes().total()), seconds.touch, seconds.registration, seconds.ratio(),
      adamw_target()));
}

void print_data(Console& console, const io::Dataset& data) {
  if (data.train)
    console.line(fmt::format("data: {} tokens to train on, {} held out", data.train_tokens,
                             data.validation_tokens));
  else
    console.line(fmt::format(
        "data: none is given to train on{}",
        data.validation ? fmt::format(", {} tokens held out", data.validation_tokens) : ""));
}

}  // namespace megatrain::launcher
