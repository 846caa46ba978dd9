/// @file
/// What rounding weights by chance does to what they learn.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/optim/slices.h"

namespace megatrain {
namespace {

constexpr Index kElements = 4096;

AdamWCoefficients coefficients(double lr, std::int64_t step) {
  AdamWCoefficients c = adamw_coefficients({.weight_decay = 0}, lr, 1, step, false);
  c.rounding_key = rounding_key(step, 1);
  return c;
}

SliceData at_one(MasterFormat master) {
  SliceData data(kElements, master, DType::bf16);
  for (std::size_t i = 0; i < kElements; ++i) {
    data.set_weight(i, 1.0F);
    data.set_gradient(i, 1e-3F);
  }
  return data;
}

double mean_weight(const SliceData& data) {
  double mean = 0;
  for (std::size_t i = 0; i < kElements; ++i) mean += data.weight(i) / double{kElements};
  return mean;
}

/// Each of 200 steps is a fortieth of what a bf16 near 1 can show.
TEST(Bf16Masters, MoveByLessThanTheyCanShow) {
  SliceData exact = at_one(MasterFormat::split);
  SliceData chance = at_one(MasterFormat::bf16);
  for (std::int64_t t = 1; t <= 200; ++t) {
    adamw_update(exact.slice(), coefficients(1e-4, t));
    adamw_update(chance.slice(), coefficients(1e-4, t));
  }
  EXPECT_NEAR(mean_weight(exact), 0.98, 1e-4);
  // Two hundred roundings of 4096 weights, each off by 2^-8 at most.
  EXPECT_NEAR(mean_weight(chance), mean_weight(exact), 1e-3);
}

/// Whatever a weight is, and whatever its moments draw: what is rounded is right in the mean.
TEST(Bf16Masters, AreRightInTheMean) {
  SliceData exact(kElements, MasterFormat::split, DType::bf16, DType::bf16);
  SliceData start(kElements, MasterFormat::bf16, DType::bf16, DType::bf16);
  exact.fill_usual(3);
  start.fill_usual(3);
  for (std::size_t i = 0; i < kElements; ++i) exact.set_weight(i, start.weight(i));
  AdamWCoefficients c = coefficients(1e-4, 5);
  adamw_update(exact.slice(), c);
  constexpr int kKeys = 400;
  std::vector<double> mean(kElements);
  for (int key = 1; key <= kKeys; ++key) {
    SliceData rounded = start;
    c.rounding_key = rounding_key(key, 1);
    adamw_update(rounded.slice(), c);
    for (std::size_t i = 0; i < kElements; ++i) mean[i] += rounded.weight(i) / kKeys;
  }
  double bias = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_NEAR(mean[i] / exact.weight(i), 1, 1e-3) << i;
    bias += (mean[i] / exact.weight(i) - 1) / kElements;
  }
  EXPECT_LT(std::abs(bias), 1.5e-5);
}

/// Were a weight's number that of a moment, it would go up just when that does. For each value of
/// one half, all values of the other give all third numbers.
TEST(Bf16Masters, DrawNumbersOfTheirOwn) {
  constexpr std::uint32_t kNumbers = 1U << 16;
  for (const std::uint32_t half : {0U, 1U, 0x8000U, 0xFFFFU, 0x1234U}) {
    std::vector<bool> by_low(kNumbers), by_high(kNumbers);
    for (std::uint32_t other = 0; other < kNumbers; ++other) {
      by_low[third_number(half << 16 | other)] = true;
      by_high[third_number(other << 16 | half)] = true;
    }
    EXPECT_EQ(std::count(by_low.begin(), by_low.end(), true), kNumbers) << half;
    EXPECT_EQ(std::count(by_high.begin(), by_high.end(), true), kNumbers) << half;
  }
}

}  // namespace
}  // namespace megatrain
