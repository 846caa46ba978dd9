#pragma once
/// @file
/// AdamW (Loshchilov & Hutter 2019, algorithm 2) on the host, as a pure function.
///
/// Same bits on every instruction set and for every slicing: each operation below is one IEEE
/// fp32 operation rounded to nearest, denormals kept, nothing contracted by the compiler.

#include <cstdint>

#include "core/base/thread_pool.h"
#include "core/base/types.h"

namespace megatrain {

/// What a user chooses.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// Smallest eps: with gradients below kLargestClippedNorm (core/optim/clip.h), m / (... + eps)
/// stays finite.
inline constexpr double kSmallestEps = 1e-18;

/// @throws UserError naming the first value that cannot work
void validate(const AdamWOptions& options);

/// What one update of one tensor group needs, made once a step in fp64 and rounded to fp32.
/// The update of an element (PyTorch's AdamW; fma(a, b, c) is a * b + c with one rounding):
///   g = clip * gradient
///   p = p * decay                            decay = 1 - lr * weight_decay
///   m = fma(1 - beta1, g - m, m)             beta1 * m + (1 - beta1) * g
///   v = fma(1 - beta2, g * g, beta2 * v)     beta2 * v + (1 - beta2) * g^2
///   p = fma(-step_size, m / fma(sqrt(v), inv_sqrt_bc2, eps), p)
///   p = p, or kLargestMaster with its sign where it is larger (core/store/split_master.h)
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

/// @param clip    ClipDecision::factor
/// @param step    1 for the first applied update (skipped steps do not count)
/// @param decays  ParamDesc::decay
/// @throws UserError when lr is negative or so large that lr * weight_decay exceeds 1, or the
///         options are not valid
AdamWCoefficients adamw_coefficients(const AdamWOptions& options, double lr, double clip,
                                     std::int64_t step, bool decays);

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
  [[nodiscard]] AdamWSlice part(Index first, Index elements) const;
};

/// Updates weights and moments of a slice in place, on the calling thread.
void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients);

/// The same over all threads of `pool`, cut into pieces of kUpdatePiece elements.
inline constexpr Index kUpdatePiece = Index{1} << 16;
void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients, ThreadPool& pool);

/// The instruction set that adamw_update runs on here ("AVX3", "AVX2", "NEON", "portable", ...).
const char* adamw_target();

}  // namespace megatrain
