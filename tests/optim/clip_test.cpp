#include "core/optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/error.h"

namespace megatrain {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct Case {
  double norm, max_norm, factor;
  bool apply;
};

TEST(Clip, Table) {
  const Case cases[] = {
      {0, 1, 1, true},
      {1e-30, 1, 1, true},
      {0.5, 1, 1, true},
      {1, 1, 1 / (1 + 1e-6), true},
      {4, 1, 1 / (4 + 1e-6), true},
      {1e30, 1, 1e-30, true},
      {2.9e38, 1, 1 / 2.9e38, true},
      {4, 0, 1, true},
      {4, -1, 1, true},
      {4, kInf, 1, true},
      {0, 0, 1, true},
      {kInf, 1, 1, false},
      {kInf, 0, 1, false},
      {kNan, 1, 1, false},
      {kNan, 0, 1, false},
      {kNan, -1, 1, false},
      {3.1e38, 1, 1, false},  // may have been infinite on the wire
      {1e20, 0, 1, false},    // its square is infinite in fp32
      {9e18, 0, 1, true},
      {1e25, 1e22, 1e-3, false},
  };
  for (const Case& c : cases) {
    const std::vector<double> squared = {c.norm * c.norm, 0};
    const ClipDecision decision = clip(squared, c.max_norm);
    EXPECT_EQ(decision.apply, c.apply) << c.norm << " clipped to " << c.max_norm;
    EXPECT_GT(decision.factor, 0);
    EXPECT_LE(decision.factor, 1);
    EXPECT_NEAR(decision.factor / c.factor, 1, 1e-12) << c.norm << " clipped to " << c.max_norm;
    if (std::isfinite(c.norm)) {
      EXPECT_NEAR(decision.norm, c.norm, 1e-12 * c.norm);
    } else {
      EXPECT_FALSE(std::isfinite(decision.norm));
    }
  }
}

TEST(Clip, OneBadElementAnywhereSkipsTheStep) {
  for (const double bad : {kInf, kNan, -10.0}) {  // no square is negative: a bug upstream
    for (std::size_t i = 0; i < 5; ++i) {
      std::vector<double> squared(5, 0.25);
      squared[i] = bad;
      EXPECT_FALSE(clip(squared, 1).apply) << bad << " at " << i;
    }
  }
  // Infinities of both signs cancel to NaN, not to a number.
  EXPECT_FALSE(clip(std::vector<double>{kInf, -kInf}, 1).apply);
}

TEST(Clip, SumsInOrderInDoublePrecision) {
  const std::vector<double> squared = {1.0, 1e-16, 1e-16, 9.0, 6.0};
  double sum = 0;
  for (const double s : squared) sum += s;
  EXPECT_EQ(clip(squared, 0).norm, std::sqrt(sum));
  EXPECT_EQ(clip({}, 1).norm, 0);
  EXPECT_TRUE(clip({}, 1).apply);
}

TEST(Clip, RefusesNanAsTheBound) { EXPECT_THROW(clip({}, kNan), UserError); }

}  // namespace
}  // namespace megatrain
