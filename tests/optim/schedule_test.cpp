#include "core/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"

namespace megatrain {
namespace {

constexpr ScheduleKind kAll[] = {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine,
                                 ScheduleKind::wsd};

TEST(Schedule, NamesGoBothWays) {
  for (const ScheduleKind kind : kAll) EXPECT_EQ(parse_schedule(name(kind)), kind);
  try {
    (void)parse_schedule("Cosine");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "unknown schedule 'Cosine'; known: constant, linear, cosine, wsd");
  }
}

TEST(Schedule, WarmUpRisesToThePeakOnEveryKind) {
  for (const ScheduleKind kind : kAll) {
    const Schedule s{kind, 1.0, 0.1, 4, 20, 0.25};
    EXPECT_DOUBLE_EQ(s.at(0), 0.25);
    EXPECT_DOUBLE_EQ(s.at(1), 0.5);
    EXPECT_DOUBLE_EQ(s.at(2), 0.75);
    EXPECT_EQ(s.at(3), 1.0);
    for (std::int64_t step = 4; step < 25; ++step) EXPECT_LE(s.at(step), s.at(step - 1));
    EXPECT_NEAR(s.at(19), kind == ScheduleKind::constant ? 1.0 : 0.1, 1e-15);
    EXPECT_EQ(s.at(20), kind == ScheduleKind::constant ? 1.0 : 0.1);
    EXPECT_EQ(s.at(std::int64_t{1} << 60), kind == ScheduleKind::constant ? 1.0 : 0.1);
  }
}

TEST(Schedule, Linear) {
  const Schedule s{ScheduleKind::linear, 1.0, 0.0, 0, 5};
  for (std::int64_t step = 0; step < 5; ++step)
    EXPECT_DOUBLE_EQ(s.at(step), 1 - 0.25 * static_cast<double>(step));
}

TEST(Schedule, Cosine) {
  const Schedule s{ScheduleKind::cosine, 1.0, 0.2, 1, 9};
  EXPECT_EQ(s.at(0), 1.0);
  EXPECT_DOUBLE_EQ(s.at(4), 0.6);
  EXPECT_NEAR(s.at(2), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
}

TEST(Schedule, WarmUpStableDecay) {
  const Schedule s{ScheduleKind::wsd, 1.0, 0.0, 2, 20, 0.25};
  for (std::int64_t step = 1; step < 15; ++step) EXPECT_EQ(s.at(step), 1.0) << step;
  for (std::int64_t step = 15; step < 20; ++step)
    EXPECT_DOUBLE_EQ(s.at(step), 1 - 0.2 * static_cast<double>(step - 14)) << step;
  // No decay at all, and nothing but decay.
  EXPECT_EQ((Schedule{ScheduleKind::wsd, 1.0, 0.0, 0, 20, 0.0}.at(19)), 1.0);
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::wsd, 1.0, 0.0, 0, 5, 1.0}.at(2)), 0.5);
}

TEST(Schedule, EdgesOfWarmUpAndLength) {
  for (const ScheduleKind kind : kAll) {
    EXPECT_EQ((Schedule{kind, 1.0, 0.0, 0, 1}.at(0)), 1.0) << name(kind);
    EXPECT_EQ((Schedule{kind, 1.0, 0.0, 1, 1}.at(0)), 1.0) << name(kind);
    EXPECT_EQ((Schedule{kind, 1.0, 0.0, 1, 2}.at(0)), 1.0) << name(kind);
    EXPECT_EQ((Schedule{kind, 1.0, 0.0, 5, 5}.at(4)), 1.0) << name(kind);
    EXPECT_EQ((Schedule{kind, 1.0, 0.0, 10, 5}.at(4)), 0.5) << name(kind);
    EXPECT_EQ((Schedule{kind, 1.0, 0.25, 3, 4, 0.9}.at(2)), 1.0) << name(kind);
    for (std::int64_t step = 0; step < 12; ++step)
      EXPECT_TRUE(std::isfinite(Schedule{kind, 1.0, 0.0, 10, 5}.at(step)));
    EXPECT_THROW((void)(Schedule{kind}.at(-1)), LogicError);
  }
}

TEST(Schedule, ValidatesByName) {
  const auto refused = [](Schedule s) { EXPECT_THROW(s.validate(), UserError); };
  const auto kind = ScheduleKind::wsd;
  EXPECT_NO_THROW((Schedule{kind, 1.0, 0.0, 0, 1, 0.2}.validate()));
  refused({kind, -1.0, 0.0, 0, 1, 0.2});
  refused({kind, std::nan(""), 0.0, 0, 1, 0.2});
  refused({kind, 1.0, 2.0, 0, 1, 0.2});
  refused({kind, 1.0, -0.1, 0, 1, 0.2});
  refused({kind, 1.0, 0.0, -1, 1, 0.2});
  refused({kind, 1.0, 0.0, 0, 0, 0.2});
  refused({kind, 1.0, 0.0, 0, 1, 1.2});
}

}  // namespace
}  // namespace megatrain
