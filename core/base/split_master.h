#pragma once
/// @file
/// The split form of an fp32 master weight: the bf16 that streams, and what it lacks.
///
/// high is the fp32 rounded to the nearest bf16, ties away from zero. The remainder is the
/// difference of the two 32-bit patterns; because the tie goes away from zero it lies in
/// [-2^15, 2^15) and is congruent to the pattern modulo 2^16: it is the pattern's low half, read
/// as a signed number. (Ties to even would need +2^15 as well, which does not fit.) Together they
/// give back the fp32, bit by bit.

#include <bit>
#include <cstdint>

#include "core/base/bfloat16.h"

namespace megatrain {

/// The largest fp32 whose nearest bf16 is finite, about 3.3953e38: a master's largest magnitude.
inline constexpr float kLargestMaster = std::bit_cast<float>(0x7f7f7fffU);

/// True when `value` can be a master: it and its bf16 are finite.
constexpr bool is_master(float value) {
  return value >= -kLargestMaster && value <= kLargestMaster;  // false for NaN
}

struct SplitMaster {
  bfloat16 high;
  std::int16_t remainder;
};

constexpr SplitMaster split_master(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {{static_cast<std::uint16_t>((bits + 0x8000U) >> 16)},
          static_cast<std::int16_t>(static_cast<std::uint16_t>(bits))};
}

constexpr float join_master(SplitMaster split) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(split.high.bits) << 16) +
                              static_cast<std::uint32_t>(split.remainder));
}

}  // namespace megatrain
