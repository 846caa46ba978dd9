// A schedule's missing event is seen by the thread sanitizer every time, whatever the timing, and
// a complete schedule is clean.

#include <gtest/gtest.h>

#include <string>

#include "tests/process.h"

namespace {

constexpr int kRaceExitCode = 66;

/// The exit code of race_child on one schedule.
int run(const std::string& schedule) {
  return megatrain::testing::run_program({RACE_CHILD, schedule},
                                         {"TSAN_OPTIONS=exitcode=66:symbolize=0"});
}

class Race : public testing::TestWithParam<const char*> {};
TEST_P(Race, IsReportedEveryTime) {
  for (int attempt = 0; attempt < 5; ++attempt) EXPECT_EQ(run(GetParam()), kRaceExitCode);
}
INSTANTIATE_TEST_SUITE_P(
    Schedules, Race,
    testing::Values("race: two copies, nothing between", "race: the first has long ended",
                    "race: both queues were used since", "race: the streams have met before",
                    "race: recorded too early", "race: the wait saw the record before",
                    "race: other work was waited for, after this was enqueued",
                    "race: fill and copy", "race: announced rows of library code",
                    "race: pool threads", "race: the host reads too early"));

class Ordered : public testing::TestWithParam<const char*> {};
TEST_P(Ordered, IsClean) {
  for (int attempt = 0; attempt < 3; ++attempt) EXPECT_EQ(run(GetParam()), 0);
}
INSTANTIATE_TEST_SUITE_P(Schedules, Ordered,
                         testing::Values("ordered: by an event", "ordered: by the host",
                                         "ordered: by an event that the host waits for",
                                         "ordered: by an event seen as reached",
                                         "ordered: a ring of two buffers", "ordered: apart rows"));

}  // namespace
