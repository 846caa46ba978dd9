#include "core/base/types.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(Types, RoundingCrosses32Bits) {
  EXPECT_EQ(round_up(0, 2048), 0);
  EXPECT_EQ(round_up(1, 2048), 2048);
  EXPECT_EQ(round_up(2048, 2048), 2048);
  EXPECT_EQ(round_up((Index{1} << 33) + 1, 2048), (Index{1} << 33) + 2048);
  EXPECT_EQ(ceil_div(0, 7), 0);
  EXPECT_EQ(ceil_div(7, 7), 1);
  EXPECT_EQ(ceil_div((Index{1} << 33) + 1, 2), (Index{1} << 32) + 1);
}

TEST(Types, CheckedArithmeticRefusesOverflow) {
  const Index most = std::numeric_limits<Index>::max();
  EXPECT_EQ(checked_mul(Index{1} << 31, Index{1} << 31), Index{1} << 62);
  EXPECT_THROW(checked_mul(Index{1} << 32, Index{1} << 31), UserError);
  EXPECT_THROW(checked_mul(-1, 1), UserError);
  EXPECT_EQ(checked_add(most - 1, 1), most);
  EXPECT_THROW(checked_add(most, 1), UserError);
  EXPECT_THROW(checked_add(1, -1), UserError);
}

TEST(Types, SizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("1234"), 1234);
  EXPECT_EQ(parse_bytes("1e9"), 1000000000);
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("512MiB"), Index{512} << 20);
  EXPECT_EQ(parse_bytes("8GiB"), Index{8} << 30);
  EXPECT_EQ(parse_bytes("24G"), Index{24} << 30);
  EXPECT_EQ(parse_bytes("1.5 GB"), Index{3} << 29);
  EXPECT_EQ(parse_bytes("2TiB"), Index{2} << 40);
}

TEST(Types, SizesThatAreNone) {
  for (const char* text : {"", "GiB", "8 gallons", "-1", "8GiBs", "nan", "inf", "1e300", "9e18TiB",
                           "8XiB", "8i", "0x10", "8\xff"})
    EXPECT_THROW(parse_bytes(text), UserError) << text;
  try {
    parse_bytes("8 gallons");
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("8 gallons"), std::string::npos);
  }
}

TEST(Types, SizesArePrintedInTheLargestUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(Index{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(Index{5} << 50), "5120.00 TiB");
}

TEST(Types, Names) {
  EXPECT_EQ(name(DType::f32), "fp32");
  EXPECT_EQ(name(DType::bf16), "bf16");
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
}

}  // namespace
}  // namespace megatrain
