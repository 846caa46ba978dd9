#include "core/base/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace megatrain {
namespace {

constexpr std::uint32_t kHalves = 1U << 16;

TEST(RoundByChance, TakesOneOfTheTwoBesideAndTheNearerOneMoreOften) {
  for (const float value : {1.00390625F, -1.00390625F, 1e-30F, 3.1416F, 1e-41F, -2.5e38F}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const float toward_zero = to_float({static_cast<std::uint16_t>(bits >> 16)});
    const float away = to_float({static_cast<std::uint16_t>((bits >> 16) + 1)});
    std::uint32_t up = 0;
    for (std::uint32_t random = 0; random < kHalves; ++random) {
      const float rounded = to_float(round_by_chance(value, random));
      ASSERT_TRUE(rounded == toward_zero || rounded == away) << value;
      up += rounded == away ? 1U : 0U;
    }
    // Exactly the part of the way that the value is: the mean is the value.
    EXPECT_EQ(up, bits & 0xFFFFU) << value;
  }
}

TEST(RoundByChance, KeepsWhatIsABfloat16) {
  for (std::uint32_t high = 0; high < kHalves; ++high) {
    const bfloat16 value{static_cast<std::uint16_t>(high)};
    if (!std::isfinite(to_float(value))) continue;
    for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xFFFFU})
      ASSERT_EQ(round_by_chance(to_float(value), random).bits, value.bits);
  }
  EXPECT_TRUE(std::isfinite(to_float(round_by_chance(kLargestBfloat16, 0xFFFFU))));
  EXPECT_EQ(kLargestBfloat16, to_float({0x7f7f}));
}

/// Both halves of the bits of neighbours are even, and know nothing of one another, of the same
/// element's at the next step, or of the next unit's.
TEST(RandomBits, AreEvenAndIndependent) {
  constexpr std::uint32_t kElements = 1U << 18;
  constexpr double kMean = 32767.5, kVariance = (65536.0 * 65536.0 - 1) / 12;
  const std::array<RoundingWords, 3> words = {rounding_words(rounding_key(7, 3), 0),
                                              rounding_words(rounding_key(8, 3), 0),
                                              rounding_words(rounding_key(7, 4), 0)};
  const auto halves = [&](std::size_t w, std::uint32_t element) {
    const std::uint32_t bits = random_bits(words[w], element);
    return std::array<double, 2>{(bits & 0xFFFFU) - kMean, (bits >> 16) - kMean};
  };
  double sums[2] = {}, squares[2] = {}, both = 0, next_element = 0, next_step = 0, next_unit = 0;
  for (std::uint32_t i = 0; i < kElements; ++i) {
    const auto own = halves(0, i);
    for (int h = 0; h < 2; ++h) sums[h] += own[h], squares[h] += own[h] * own[h];
    both += own[0] * own[1];
    next_element += own[0] * halves(0, i + 1)[0];
    next_step += own[0] * halves(1, i)[0];
    next_unit += own[0] * halves(2, i)[0];
  }
  // Five standard deviations of what chance does.
  const double root = std::sqrt(double{kElements});
  for (int h = 0; h < 2; ++h) {
    EXPECT_LT(std::abs(sums[h]), 5 * std::sqrt(kVariance) * root);
    EXPECT_NEAR(squares[h] / kElements / kVariance, 1, 0.01);
  }
  for (const double products : {both, next_element, next_step, next_unit})
    EXPECT_LT(std::abs(products), 5 * kVariance * root);
}

TEST(RandomBits, GoOnBeyond2ToThe32AndDifferThere) {
  const std::uint64_t key = rounding_key(1, 0);
  const std::int64_t far = std::int64_t{1} << 32;
  std::set<std::uint64_t> seen;
  for (const std::int64_t position : {std::int64_t{0}, far, 2 * far, 5 * far}) {
    const RoundingWords words = rounding_words(key, position + 12345);
    EXPECT_EQ(words.before, rounding_words(key, position).before);
    seen.insert(random_bits(words, 12345));
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(RoundingKey, IsOfItsStepAndUnit) {
  std::set<std::uint64_t> keys;
  for (std::int64_t step = 1; step <= 300; ++step)
    for (std::int64_t unit = 0; unit < 100; ++unit) keys.insert(rounding_key(step, unit));
  EXPECT_EQ(keys.size(), 30000U);
  // What checkpoints go on from: it must not change.
  static_assert(rounding_key(1, 0) == 0x5e41ab087439611eU);
  static_assert(random_bits(rounding_words(rounding_key(1, 0), 5), 5) == 0x8e21b5e5U);
}

}  // namespace
}  // namespace megatrain
