#include "core/base/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace megatrain {
namespace {

bfloat16 with_bits(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

TEST(Bfloat16, EveryValueSurvivesWideningAndRounding) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float wide = to_float(with_bits(bits));
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(wide)))) << bits;
    } else {
      EXPECT_EQ(to_bfloat16(wide).bits, bits);
    }
  }
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  // Between every two finite neighbours: just below, on and just above the middle.
  for (std::uint32_t bits = 0; bits < 0x7f7fU; ++bits) {
    const std::uint32_t middle = (bits << 16) + 0x8000U;
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(middle - 1)).bits, bits);
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(middle)).bits, bits + (bits & 1U));
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(middle + 1)).bits, bits + 1);
    EXPECT_EQ(to_bfloat16(-std::bit_cast<float>(middle)).bits, 0x8000U | (bits + (bits & 1U)));
  }
}

TEST(Bfloat16, OverflowsToInfinityAndKeepsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bfloat16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(to_float(to_bfloat16(-infinity)), -infinity);
  // A NaN whose payload lies in the bits that are cut off must not become infinity.
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0xffffffffU)))));
}

}  // namespace
}  // namespace megatrain
