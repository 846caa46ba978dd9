/// @file
/// What rounding moments by chance does to the averages that they are.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/slices.h"

namespace megatrain {
namespace {

constexpr Index kElements = 4096;

AdamWCoefficients coefficients(const AdamWOptions& options, std::int64_t step) {
  AdamWCoefficients c = adamw_coefficients(options, 1e-3, 1, step, false);
  c.rounding_key = rounding_key(step, 1);
  return c;
}

/// One step from the same moments again and again, each with the key of another step: their mean is
/// what fp32 would have kept.
TEST(Bf16Moments, AreRightInTheMean) {
  SliceData exact(kElements, MasterFormat::split, DType::bf16);
  exact.fill_usual(3);
  SliceData start(kElements, MasterFormat::split, DType::bf16, DType::bf16);
  start.fill_usual(3);
  for (std::size_t i = 0; i < kElements; ++i)  // both begin with what bf16 can hold
    exact.set_moments(i, start.first_moment(i), start.second_moment(i));
  AdamWCoefficients c = coefficients({}, 5);
  adamw_update(exact.slice(), c);

  constexpr int kKeys = 400;
  std::vector<double> first(kElements), second(kElements);
  for (int key = 1; key <= kKeys; ++key) {
    SliceData rounded = start;
    c.rounding_key = rounding_key(key, 1);
    adamw_update(rounded.slice(), c);
    for (std::size_t i = 0; i < kElements; ++i) {
      first[i] += rounded.first_moment(i) / kKeys;
      second[i] += rounded.second_moment(i) / kKeys;
      ASSERT_EQ(rounded.weight(i), exact.weight(i)) << "weights see what is not rounded";
    }
  }
  // An error is below 2^-7 of the value, its deviation below half of that: the means of 400 are
  // within five deviations of 2^-8 / 20, and the mean over all elements far closer.
  double bias = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double m = exact.first_moment(i), v = exact.second_moment(i);
    EXPECT_NEAR(first[i] / m, 1, 1e-3) << i;
    EXPECT_NEAR(second[i] / v, 1, 1e-3) << i;
    bias += (second[i] / v - 1) / kElements;
  }
  EXPECT_LT(std::abs(bias), 1.5e-5);
}

/// beta2 = 0.999 changes v by a thousandth of the way a step, which bf16 cannot show.
TEST(Bf16Moments, FollowASlowAverageWhereRoundingToNearestStandsStill) {
  AdamWOptions options;
  options.beta2 = 0.999;
  SliceData chance(kElements, MasterFormat::split, DType::f32, DType::bf16);
  SliceData nearest(kElements, MasterFormat::split, DType::f32, DType::bf16);
  SliceData exact(kElements, MasterFormat::split, DType::f32);
  for (SliceData* data : {&chance, &nearest, &exact})
    for (std::size_t i = 0; i < kElements; ++i) {
      data->set_moments(i, 0, 1);
      data->set_gradient(i, 1.1F);  // whose square is 1.21: v goes there from 1
    }
  for (std::int64_t t = 1; t <= 2000; ++t) {
    const AdamWCoefficients c = coefficients(options, t);
    adamw_update(chance.slice(), c);
    adamw_update(exact.slice(), c);
    // The same in fp32, and then to nearest.
    SliceData wide(kElements, MasterFormat::split, DType::f32);
    for (std::size_t i = 0; i < 1; ++i) {
      wide.set_moments(i, nearest.first_moment(i), nearest.second_moment(i));
      wide.set_gradient(i, 1.1F);
    }
    adamw_update(wide.slice().part(0, 1), c);
    nearest.set_moments(0, wide.first_moment(0), wide.second_moment(0));
  }
  const double right = exact.second_moment(0);
  EXPECT_GT(right, 1.18);
  EXPECT_EQ(nearest.second_moment(0), 1.0F);
  double mean = 0, worst = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    mean += chance.second_moment(i) / double{kElements};
    worst = std::max(worst, std::abs(chance.second_moment(i) / right - 1));
  }
  EXPECT_NEAR(mean / right, 1, 0.002);
  // A thousand roundings add up, each of 2^-7 at most and soon forgotten.
  EXPECT_LT(worst, 0.1);
}

/// The update that comes of noisy moments: a quadratic, and the way to its minimum.
TEST(Bf16Moments, ComeToTheSameMinimum) {
  AdamWOptions options;
  options.weight_decay = 0;
  SliceData data[2] = {{kElements, MasterFormat::split, DType::f32, DType::f32},
                       {kElements, MasterFormat::split, DType::f32, DType::bf16}};
  double distance[2] = {};
  for (int d = 0; d < 2; ++d) {
    for (std::size_t i = 0; i < kElements; ++i) data[d].set_weight(i, 1.0F);
    for (std::int64_t t = 1; t <= 1500; ++t) {
      for (std::size_t i = 0; i < kElements; ++i)
        data[d].set_gradient(i, data[d].weight(i) - 0.25F);
      adamw_update(data[d].slice(), coefficients(options, t));
    }
    for (std::size_t i = 0; i < kElements; ++i)
      distance[d] += std::abs(data[d].weight(i) - 0.25F) / kElements;
  }
  EXPECT_LT(distance[0], 1e-3);
  EXPECT_LT(distance[1], 1e-3);
}

}  // namespace
}  // namespace megatrain
