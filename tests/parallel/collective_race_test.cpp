// Collectives are work of their stream to the thread sanitizer: a missing event beside one is seen,
// and meeting other ranks, or agreeing with them on the host, does not hide it.

#include <gtest/gtest.h>

#include <string>

#include "tests/process.h"

namespace {

constexpr int kRaceExitCode = 66;

int run(const std::string& schedule) {
  return megatrain::testing::run_program({COLLECTIVE_RACE_CHILD, schedule},
                                         {"TSAN_OPTIONS=exitcode=66:symbolize=0"});
}

class CollectiveRace : public testing::TestWithParam<const char*> {};
TEST_P(CollectiveRace, IsReported) { EXPECT_EQ(run(GetParam()), kRaceExitCode); }
INSTANTIATE_TEST_SUITE_P(Schedules, CollectiveRace,
                         testing::Values("race: the gather does not wait for the slice",
                                         "race: the slice is written during the gather",
                                         "race: the sum is read too early"));

TEST(CollectiveOrder, IsClean) { EXPECT_EQ(run("ordered"), 0); }

}  // namespace
