#pragma once
/// @file
/// The floating-point types that files may hold, bit by bit.

#include <array>

#include "io/file_type.h"

namespace megatrain::io::hdf5 {

/// A little-endian float that fills its bytes: sign above exponent above mantissa, implied first
/// bit.
struct FloatLayout {
  FileType type;
  unsigned exponent_bits, mantissa_bits, bias;
  [[nodiscard]] constexpr unsigned bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline constexpr std::array<FloatLayout, 4> kFloats = {{
    {.type = FileType::f64, .exponent_bits = 11, .mantissa_bits = 52, .bias = 1023},
    {.type = FileType::f32, .exponent_bits = 8, .mantissa_bits = 23, .bias = 127},
    {.type = FileType::f16, .exponent_bits = 5, .mantissa_bits = 10, .bias = 15},
    {.type = FileType::bf16, .exponent_bits = 8, .mantissa_bits = 7, .bias = 127},
}};

}  // namespace megatrain::io::hdf5
