#pragma once
/// @file
/// Sizes, element types and small arithmetic helpers. Everything that counts elements or bytes is
/// a signed 64-bit number: a single slab may hold more than 2^31 elements.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace megatrain {

/// Counts of elements, tokens, rows; pitches; bytes.
using Index = std::int64_t;

/// Element types that the core computes with or stores. Files may hold others (io converts).
enum class DType : std::uint8_t { f32, bf16 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

/// "fp32" or "bf16", as options and messages spell them.
constexpr std::string_view name(DType type) { return type == DType::f32 ? "fp32" : "bf16"; }

/// Smallest multiple of `step` that is not below `value`; both non-negative, `step` positive.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// ceil(value / step).
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step;
}

/// a * b, or UserError when it does not fit 63 bits (sizes that come from files and options).
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
    throw UserError("size overflow: " + std::to_string(a) + " x " + std::to_string(b));
  return product;
}

/// a + b, or UserError when it does not fit 63 bits.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
    throw UserError("size overflow: " + std::to_string(a) + " + " + std::to_string(b));
  return sum;
}

/// "1.50 GiB", "12.0 MiB", "512 B".
std::string format_bytes(std::int64_t bytes);

/// The size rounded up to whole MiB and spelled as parse_bytes reads it: "1500MiB".
std::string ceil_to_mebibytes(std::int64_t bytes);

/// Parses "8GiB", "512MiB", "24G" (binary), "1e9", "1234" into bytes. @throws UserError
std::int64_t parse_bytes(std::string_view text);

}  // namespace megatrain
