// Runs two steps of a plan of the grid with one of its waits left out, and exits. plan_race_test
// runs it under the thread sanitizer, which ends it with its own exit code when there is a race.
// Usage: plan_race_child CASE WAIT   (WAIT -1: the plan as it is; "count" prints how many there
// are)

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/engine/executor.h"
#include "core/plan/writers.h"
#include "core/train/batch.h"
#include "tests/plan/plan_grid.h"

namespace {

using namespace megatrain;

testing::PlanCase case_named(std::string_view name) {
  for (testing::PlanCase& c : testing::plan_grid())
    if (c.name == name) return c;
  std::abort();
}

void forget(Plan& plan, long wait) {
  for (Instruction& i : plan.body.instructions) {
    if (wait < i.waits_begin || wait >= i.waits_end) continue;
    // The last one takes its place, and the list gets shorter.
    plan.body.waits[static_cast<std::size_t>(wait)] = plan.body.waits[i.waits_end - 1];
    --i.waits_end;
    return;
  }
  std::abort();
}

/// The engine's parts put together without the checker, which would refuse such a plan.
void run(const testing::PlanCase& c, const Plan& plan) {
  const auto device = make_cpu_device({.threads = 2});
  const ops::Ops ops = ops::make_ops(*device, c.choices.compute.type);
  const Model model(c.config);
  ThreadPool pool(1);
  StoreOptions options;
  options.master = c.choices.master;
  options.gradient_bytes = c.choices.gradient_bytes();
  HostStore store(model, options, *device, pool);
  initialize(store, 1, pool);
  const Plan* plans[] = {&plan};
  EngineMemory memory(plans, *device, store, pool);
  DeviceStreams streams(*device);
  HostQueue updates;
  Executor executor(plan, {*device, ops, model, store, memory, streams, updates, pool});
  executor.poison_released_slots(true);
  const std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(c.choices.step_sequences() * (c.choices.micro_batch.sequence + 1)),
      5);
  const Batch batch = make_batch(c.choices, c.config, tokens);
  executor.start();
  double seen = 0;
  for (std::int64_t step = 1; step <= 2; ++step) {
    const auto pending =
        step == 1 ? std::nullopt : std::optional(PendingUpdate{{}, 1e-3, 1.0, step - 1});
    executor.run(batch.inputs, pending);
    for (const float loss : executor.losses()) seen += static_cast<double>(loss);
    for (const double norm : executor.squared_norms()) seen += norm;
  }
  executor.flush({{}, 1e-3, 1.0, 2});
  std::printf("%g\n", seen);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const testing::PlanCase c = case_named(arguments[1]);
  Plan plan = make_plan(Model(c.config), c.choices);
  if (std::string_view(arguments[2]) == "count") {
    std::printf("%zu\n", plan.body.waits.size());
    return 0;
  }
  if (const long wait = std::strtol(arguments[2], nullptr, 10); wait >= 0) forget(plan, wait);
  run(c, plan);
  return 0;
}
