#include "launcher/options/bench_options.h"

#include "launcher/options/shared_tables.h"

namespace megatrain::launcher {

std::vector<Option> bench_table(BenchOptions& o) {
  std::vector<Option> table = {model_option(o.run)};
  table.front().required = false;  // it has a default
  append(table, batch_table(o.run));
  append(table, machine_table(o.run.machine));
  append(table, state_table(o.run.machine));
  append(table, choice_table(o.run));
  append(table,
         {
             {"steps",
              kRun,
              "STEPS",
              "Steps to time; 0: measure the machine alone",
              &o.steps,
              {},
              0.0},
             {"warmup-steps", kRun, "STEPS", "Steps before those", &o.warmup_steps, {}, 1.0},
             {"tokens",
              kRun,
              "TOKENS",
              "Measure kernels with a micro-batch of so many tokens; absent: the plan's",
              &o.tokens,
              {},
              1.0},
             {"disk", kRun, "FOLDER",
              "Where checkpoints will go, to measure that disk; absent: the folder of --rates, "
              "without --rates none",
              &o.disk},
             {"gpus",
              kRun,
              "N",
              "Also measure what the first N GPUs copy together, for plans of several ranks",
              &o.gpus,
              {},
              1.0},
             {"rates", kRun, "FILE", "Where to write the rates, for train and plan", &o.rates},
             {"json", kRun, "FILE", "Where to write all results", &o.json},
             {"trace", kRun, "FILE",
              "Where to write a Chrome trace of one more step, and of the predicted one below it",
              &o.run.trace},
             peak_option(o.run, "the GPU's data sheet, if it is known"),
         });
  return table;
}

}  // namespace megatrain::launcher
