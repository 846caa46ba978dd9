#pragma once
/// @file
/// The end of a unit's gradient on the device: exact squared norm, then the wire type.

#include <array>

#include "core/ops/common.h"

namespace megatrain::ops {

/// Elements that one squared-norm partial covers. Fixed: the order of additions does not depend
/// on the device.
inline constexpr Index kNormChunk = 16384;

constexpr Index norm_partials(Index count) { return ceil_div(count, kNormChunk); }

/// Runs of a gradient that no square is taken of, because they count elsewhere. In order, apart.
struct UncountedRuns {
  struct Run {
    Index first = 0, last = 0;
  };
  static constexpr Index kMost = 8;
  std::array<Run, kMost> runs = {};
  Index count = 0;

  [[nodiscard]] constexpr bool have(Index element) const {
    for (Index i = 0; i < count; ++i) {
      const Run& run = runs[static_cast<std::size_t>(i)];
      if (element >= run.first && element < run.last) return true;
    }
    return false;
  }
};

/// partials[c] = sum of squares of gradient[c * kNormChunk ...] in fp64, from the fp32 values;
/// wire = gradient rounded to the wire type (nearest, ties to even; NaN and infinity kept).
struct ReduceGradient {
  Index count = 0;
  const float* gradient = nullptr;
  DType wire_type = DType::bf16;
  void* wire = nullptr;
  double* partials = nullptr;  ///< [norm_partials(count)]
  UncountedRuns uncounted = {};
};

}  // namespace megatrain::ops
