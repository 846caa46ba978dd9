#include "core/base/split_master.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megatrain {
namespace {

// All 2^32 patterns are tried by SplitMaster in tests/optim/adamw_slow_test.cpp; here are the edges
// and a stride that meets every sign, exponent and low half.
void expect_exact(std::uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  if (!is_master(value)) return;
  const SplitMaster split = split_master(value);
  ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(split)), bits) << std::hex << bits;
  ASSERT_TRUE(std::isfinite(to_float(split.high))) << std::hex << bits;
  // Nearest: half a step of bf16 at most.
  const double error = std::abs(static_cast<double>(to_float(split.high)) - value);
  const auto next = std::bit_cast<float>((bits & 0x7fff0000U) + 0x10000U);
  const auto here = std::bit_cast<float>(bits & 0x7fff0000U);
  if (std::isfinite(next)) {
    ASSERT_LE(error, 0.5 * (static_cast<double>(next) - here)) << std::hex << bits;
  }
}

TEST(SplitMaster, IsExactOnAStride) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1021)
    expect_exact(static_cast<std::uint32_t>(bits));
}

TEST(SplitMaster, TiesGoAwayFromZero) {
  // To even, 0x3f808000 would go down to 0x3f80 and leave +2^15, which an int16 has not.
  EXPECT_EQ(split_master(std::bit_cast<float>(0x3f808000U)).high.bits, 0x3f81);
  EXPECT_EQ(split_master(std::bit_cast<float>(0x3f808000U)).remainder, -0x8000);
  EXPECT_EQ(split_master(std::bit_cast<float>(0xbf808000U)).high.bits, 0xbf81);
  EXPECT_EQ(split_master(std::bit_cast<float>(0x3f807fffU)).high.bits, 0x3f80);
  EXPECT_EQ(split_master(std::bit_cast<float>(0x3f807fffU)).remainder, 0x7fff);
}

TEST(SplitMaster, EndsWhereBf16WouldBeInfinite) {
  EXPECT_TRUE(is_master(kLargestMaster));
  EXPECT_TRUE(is_master(-kLargestMaster));
  const float beyond = std::bit_cast<float>(0x7f7f8000U);
  EXPECT_FALSE(is_master(beyond));
  EXPECT_TRUE(std::isinf(to_float(split_master(beyond).high)));
  EXPECT_FALSE(is_master(std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(is_master(std::nanf("")));
  for (const std::uint32_t bits : {0U, 0x80000000U, 1U, 0x80000001U, 0x007fffffU, 0x00800000U,
                                   0x7f7f7fffU, 0xff7f7fffU, 0x0000ffffU, 0x00008000U})
    expect_exact(bits);
}

}  // namespace
}  // namespace megatrain
