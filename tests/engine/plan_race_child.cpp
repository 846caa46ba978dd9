// Runs three steps of a plan of the grid with one of its waits left out, and exits. plan_race_test
// runs it under the thread sanitizer, which ends it with its own exit code when there is a race.
// Usage: plan_race_child CASE WAIT   (WAIT -1: the plan as it is; "count" prints how many there
// are)

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/plan/writers.h"
#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace {

using namespace megatrain;

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

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const testing::PlanCase c = testing::case_named(arguments[1]);
  Plan plan = make_plan(Model(c.config), c.choices);
  if (std::string_view(arguments[2]) == "count") {
    std::printf("%zu\n", plan.body.waits.size());
    return 0;
  }
  if (const long wait = std::strtol(arguments[2], nullptr, 10); wait >= 0) forget(plan, wait);
  testing::RigOptions options;
  options.device_threads = 2;
  options.poison = true;
  // Each is late where the other should wait for it.
  options.slow_reader = 5e-3;
  options.slow_updates = 2e-3;
  std::printf("%g\n", testing::run_unchecked(c.config, plan, 3, options).norms.back());
  return 0;
}
