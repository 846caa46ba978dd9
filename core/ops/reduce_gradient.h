#pragma once
/// @file
/// The end of a unit's gradient on the device: exact squared norm, then the wire type.

#include "core/ops/common.h"

namespace megatrain::ops {

/// Elements that one squared-norm partial covers. Fixed: the order of additions does not depend
/// on the device.
inline constexpr Index kNormChunk = 16384;

constexpr Index norm_partials(Index count) { return ceil_div(count, kNormChunk); }

/// partials[c] = sum of squares of gradient[c * kNormChunk ...] in fp64, from the fp32 values;
/// wire = gradient rounded to the wire type (nearest, ties to even; NaN and infinity kept).
struct ReduceGradient {
  Index count = 0;
  const float* gradient = nullptr;
  DType wire_type = DType::bf16;
  void* wire = nullptr;
  double* partials = nullptr;  ///< [norm_partials(count)]
};

}  // namespace megatrain::ops
