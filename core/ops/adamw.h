#pragma once
/// @file
/// AdamW (Loshchilov & Hutter 2019, algorithm 2), as a pure function.
///
/// Same bits on every instruction set, on every device and for every slicing: each operation below
/// is one IEEE fp32 operation rounded to nearest, denormals kept, nothing contracted by the
/// compiler.

#include <cstdint>

#include "core/ops/common.h"

namespace megatrain::ops {

/// What one update of one tensor group needs, made once a step in fp64 and rounded to fp32.
/// The update of an element (PyTorch's AdamW; fma(a, b, c) is a * b + c with one rounding):
///   g = clip * gradient
///   p = p * decay                            decay = 1 - lr * weight_decay
///   m = fma(1 - beta1, g - m, m)             beta1 * m + (1 - beta1) * g
///   v = fma(1 - beta2, g * g, beta2 * v)     beta2 * v + (1 - beta2) * g^2
///   p = fma(-step_size, m / fma(sqrt(v), inv_sqrt_bc2, eps), p)
///   p = p, or kLargestMaster with its sign where it is larger (core/base/split_master.h)
/// So a weight saturates before its bf16 would be infinite. A step that clip() lets through keeps
/// every state finite; what a NaN among the inputs gives is not defined.
struct AdamWCoefficients {
  float clip = 1;
  float decay = 1;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;     ///< lr / (1 - beta1^t)
  float inv_sqrt_bc2 = 1;  ///< 1 / sqrt(1 - beta2^t)
  float eps = 0;
};

/// A contiguous range of elements of one tensor group; the arrays do not overlap, each is aligned
/// to its element.
struct AdamWSlice {
  Index count = 0;
  std::byte* weights = nullptr;       ///< bf16 with `remainder`, else fp32
  std::int16_t* remainder = nullptr;  ///< nullptr: weights are fp32 masters
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const std::byte* gradient = nullptr;
  DType gradient_type = DType::bf16;

  /// Elements [first, first + elements) of this slice.
  [[nodiscard]] AdamWSlice part(Index first, Index elements) const {
    AdamWSlice result = *this;
    result.count = elements;
    result.weights += first * (remainder != nullptr ? 2 : 4);
    if (remainder != nullptr) result.remainder += first;
    result.exp_avg += first;
    result.exp_avg_sq += first;
    result.gradient += first * size_of(gradient_type);
    return result;
  }
};

/// Updates weights and moments of a slice in place: what the host's update does, for states that
/// live on the device.
struct AdamW {
  AdamWSlice slice;
  AdamWCoefficients coefficients;
};

}  // namespace megatrain::ops
