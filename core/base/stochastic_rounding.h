#pragma once
/// @file
/// fp32 to bf16 by chance: up or down with probabilities that make the mean exact. So a value that
/// changes by less than its bf16 can show, as an average does at each step, still moves.
///
/// Chance is a function: of a key, which says what is rounded and when, and of the element's
/// position. The same numbers come out on every instruction set and device, and however the
/// elements are cut into pieces. Per element there are operations on 32-bit numbers only, which
/// vector units have.

#include <bit>
#include <cstdint>

#include "core/base/bfloat16.h"

namespace megatrain {

/// The largest finite bf16, about 3.3895e38.
inline constexpr float kLargestBfloat16 = std::bit_cast<float>(0x7f7f0000U);

/// Every bit of the result depends on every bit of `value`, and no two values have the same one:
/// the step of splitmix64 (Steele, Lea & Flood 2014).
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

/// The key of one unit's states in one optimizer step.
constexpr std::uint64_t rounding_key(std::int64_t step, std::int64_t unit) {
  return mix_bits(mix_bits(static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(unit));
}

/// A key for elements whose positions have the same upper 32 bits.
struct RoundingWords {
  std::uint32_t before = 0, between = 0;
};
/// @param position  of any of these elements
constexpr RoundingWords rounding_words(std::uint64_t key, std::int64_t position) {
  const std::uint64_t mixed = mix_bits(key + (static_cast<std::uint64_t>(position) >> 32));
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

// Multipliers of a 32-bit mixer with little bias (lowbias32, C. Wellons 2018).
inline constexpr std::uint32_t kFirstMultiplier = 0x7feb352dU;
inline constexpr std::uint32_t kSecondMultiplier = 0x846ca68bU;

/// 32 random bits of an element. @param low  the lower 32 bits of its position
constexpr std::uint32_t random_bits(RoundingWords words, std::uint32_t low) {
  std::uint32_t bits = low ^ words.before;
  bits = (bits ^ (bits >> 16)) * kFirstMultiplier;
  bits ^= words.between;
  bits = (bits ^ (bits >> 15)) * kSecondMultiplier;
  return bits ^ (bits >> 16);
}

/// A third number below 2^16 of random_bits(), besides its two halves: pairwise they are
/// independent, because for each value of one half every value of the other gives another sum.
inline constexpr std::uint32_t kThirdNumberFactor = 0x9E37U;  // odd
constexpr std::uint32_t third_number(std::uint32_t random) {
  return ((random >> 16) + random * kThirdNumberFactor) & 0xFFFFU;
}

/// One of the two bf16 beside a finite value (the value itself if it is one), the nearer one more
/// often. Zero stays zero. Of magnitude kLargestBfloat16 at most, the result is finite.
/// @param random  uniform in [0, 2^16)
constexpr bfloat16 round_by_chance(float value, std::uint32_t random) {
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16)};
}

}  // namespace megatrain
