#include "launcher/commands/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "io/atomic_file.h"
#include "launcher/console.h"
#include "launcher/output_file.h"
#include "launcher/session/banner.h"
#include "launcher/session/bench_report.h"
#include "launcher/session/training.h"

namespace megatrain::launcher {

namespace {

void check_options(const BenchOptions& options) {
  check_output_file("--rates", options.rates);
  check_output_file("--json", options.json);
  check_output_file("--trace", options.run.trace);
  if (options.run.trace && options.steps == 0)
    throw UserError("--trace needs a step to trace: give --steps above 0");
  if (options.disk && !std::filesystem::is_directory(*options.disk))
    throw UserError(fmt::format("--disk {} is no folder", *options.disk));
  if (options.gpus > 1 && options.gpus > cuda_device_count())
    throw UserError(
        fmt::format("--gpus is {}, but this machine has {}", options.gpus, cuda_device_count()));
}

/// Where the disk is measured, if it is.
std::optional<std::filesystem::path> disk_of(const BenchOptions& options) {
  if (options.disk) return *options.disk;
  // Rates that go to a device say nothing about where checkpoints will.
  if (options.rates && (!std::filesystem::exists(*options.rates) ||
                        std::filesystem::is_regular_file(*options.rates)))
    return std::filesystem::absolute(*options.rates).parent_path();
  return std::nullopt;
}

/// The plan's choices with the micro-batch that the options ask to measure with.
Choices measured_choices(const BenchOptions& options, const Choices& planned) {
  Choices choices = planned;
  if (!options.tokens) return choices;
  choices.micro_batch.sequence = std::min(options.run.seq_len, *options.tokens);
  choices.micro_batch.batch = *options.tokens / choices.micro_batch.sequence;
  return choices;
}

void write_rates(const BenchReport& report, const std::string& file) {
  io::write_file(file, fmt::format("# {} in {}, shapes of {}, {} tokens a micro-batch\n{}",
                                   report.machine, name(report.compute), report.model,
                                   report.measured_tokens, format_rates(report.ceilings.rates)));
}

}  // namespace

void bench(const BenchOptions& options) {
  Console console;
  check_options(options);
  const ModelSource source = find_model(options.run.model);
  (void)training_options(options.run);
  const Model model(source.config);
  Machine machine = open_machine(options.run.machine, model, Presence::required);
  const auto plans_by = [&](const Rates& rates) {
    return plan_run(options.run, machine, model, rates,
                    options.run.key ? std::optional(read_key(*options.run.key)) : std::nullopt);
  };
  // A first plan says which shapes to measure; what is measured then decides on the plan that runs.
  const Choices measured =
      measured_choices(options, plans_by(rates_of(options.run, machine)).train.choices);

  BenchReport report;
  report.model = source.name;
  report.parameters = model.parameter_count();
  report.machine = machine.name;
  report.device = machine.kind;
  report.compute = machine.compute;
  report.threads = machine.threads;
  report.measured_tokens = measured.micro_batch.tokens();
  report.flops_per_token = model_flops_per_token(model, measured.micro_batch.sequence);
  report.peak = options.run.peak.value_or(machine.peak_flops);
  report.peak_source = options.run.peak ? "given" : "data sheet";
  console.line(fmt::format("measuring {} in {}, shapes of {}, {} tokens", report.machine,
                           name(report.compute), report.model, report.measured_tokens));
  ThreadPool pool(machine.threads.count, machine.threads.processors);
  report.ceilings = measure_ceilings(machine, model, measured, pool, disk_of(options),
                                     static_cast<int>(options.gpus));
  const Rates& rates = report.ceilings.rates;
  // Libraries keep what measuring made them load.
  measure_again(machine, options.run.machine);
  RunPlans plans = plans_by(rates);
  const Plan plan = plans.train;
  report.plan = describe(plan.choices, model);
  report.choices = plan.choices;
  report.prediction = simulate(plan, rates);
  report.predicted = step_shares(plan, report.prediction.trace, rates);
  console.line(ceilings_text(report));
  print_banner(console, source, model, machine, plans, {rates, report.prediction});
  if (options.rates) {
    write_rates(report, *options.rates);
    console.line("rates are in " + *options.rates);
  }

  if (options.steps > 0) {
    report.warmup_steps = options.warmup_steps;
    report.run = run_steps(options, source, model, machine, plans, pool, console);
    report.traced = step_shares(plan, report.run->trace, rates);
    console.line(steps_text(report));
  }
  if (options.run.trace) {
    const std::array traces = {NamedTrace{"measured", &report.run->trace},
                               NamedTrace{"predicted", &report.prediction.trace}};
    io::write_file(*options.run.trace, traces_to_json(traces));
  }
  if (options.json) io::write_file(*options.json, to_json(report));
}

}  // namespace megatrain::launcher
