#pragma once
/// @file
/// bfloat16 as a storage type on the host. Arithmetic happens in fp32.

#include <bit>
#include <cstdint>

namespace megatrain {

/// Sixteen bits of storage: the sign, 8 exponent and 7 mantissa bits of an fp32.
struct bfloat16 {
  std::uint16_t bits;
};
static_assert(sizeof(bfloat16) == 2);

/// Exact widening.
constexpr float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN (quiet), overflow becomes infinity.
constexpr bfloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

}  // namespace megatrain
