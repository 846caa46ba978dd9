#include "launcher/session/bench_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/train/trainer.h"
#include "launcher/session/banner.h"
#include "launcher/session/training.h"

namespace megatrain::launcher {

void SyntheticTokens::sample(Index index, std::span<std::int32_t> tokens) const {
  // splitmix64 (Steele et al. 2014) over the position in the stream of all samples.
  auto counter = static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(tokens.size());
  for (std::int32_t& token : tokens) {
    std::uint64_t z = (++counter) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    token = static_cast<std::int32_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(vocabulary_));
  }
}

double BenchRun::median() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double BenchRun::least() const { return *std::ranges::min_element(seconds); }

double BenchRun::most() const { return *std::ranges::max_element(seconds); }

BenchRun run_steps(const BenchOptions& options, const ModelSource& source, const Model& model,
                   Machine& machine, RunPlans& plans, ThreadPool& pool, Console& console) {
  RunOptions run = options.run;
  run.steps = options.warmup_steps + options.steps + 1;
  run.schedule = "constant";
  HostStore store(model,
                  {.master = machine.master,
                   .moments = machine.moments,
                   .gradient_bytes = plans.train.choices.gradient_bytes(),
                   .progress = console.bytes_progress("taking host memory")},
                  *machine.device, pool);
  print_store(console, store);
  fill_store(store, source, run.seed, pool, console.bytes_progress("loading weights"));
  Engine engine(*machine.device, *machine.ops, model, store, pool,
                {.train = std::move(plans.train)});
  const SyntheticTokens tokens(run.seq_len, model.config().vocabulary);
  Trainer trainer(engine, model, tokens, nullptr, training_options(run));
  BenchRun result;
  result.store_bytes = store.bytes().total();
  result.store_seconds = store.seconds();
  for (Index step = 0; step < run.steps; ++step) {
    const bool warms_up = step < options.warmup_steps;
    const bool traced = step + 1 == run.steps;
    const StepMetrics metrics = trainer.step(traced ? &result.trace : nullptr);
    if (!warms_up && !traced) result.seconds.push_back(metrics.seconds);
    result.host_bytes = metrics.host_bytes;
    result.device_bytes = metrics.device_bytes + machine.device->reserve_bytes();
    console.progress(fmt::format("step {}/{}", step + 1, run.steps),
                     static_cast<double>(step + 1) / static_cast<double>(run.steps));
  }
  return result;
}

}  // namespace megatrain::launcher
