// A wait left out of a real step is seen by the thread sanitizer on the CPU device, and the whole
// plan is clean: what the checker proves on paper holds for the threads that run it.

#include <gtest/gtest.h>

#include "core/plan/writers.h"
#include "tests/plan/plan_grid.h"
#include "tests/process.h"

namespace megatrain::testing {
namespace {

constexpr int kRaceExitCode = 66;

int run(const std::string& plan, long wait) {
  return run_program({PLAN_RACE_CHILD, plan, std::to_string(wait)},
                     {"TSAN_OPTIONS=exitcode=66:symbolize=0:halt_on_error=1"});
}

std::size_t waits_of(const std::string& name) {
  const PlanCase c = case_named(name);
  return make_plan(Model(c.config), c.choices).body.waits.size();
}

class PlanRace : public ::testing::TestWithParam<const char*> {};

TEST_P(PlanRace, TheWholePlanIsClean) { EXPECT_EQ(run(GetParam(), -1), 0); }

/// A lock that both threads happen to take in the right order hides a race from the sanitizer, so
/// one run may miss it; a wait that nothing needs would be missed by all.
bool is_reported(const std::string& plan, long wait) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i)
    if (const int code = run(plan, wait); code != 0) return code == kRaceExitCode;
  return false;
}

TEST_P(PlanRace, AMissingWaitIsReported) {
  const auto count = static_cast<long>(waits_of(GetParam()));
  // A stride that meets every kind of instruction in time.
  for (long wait = count % 7; wait < count; wait += 7)
    EXPECT_TRUE(is_reported(GetParam(), wait)) << "wait " << wait;
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanRace,
                         ::testing::Values("one_micro_batch", "segments_spill_tied",
                                           "rows_tied_waves", "graphs"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace megatrain::testing
