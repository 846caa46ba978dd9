#pragma once
/// @file
/// AdamW on the host: what a user chooses, the coefficients of a step, and the update over all
/// threads. The formula and its bits are those of core/ops/adamw.h.

#include <cstdint>

#include "core/base/thread_pool.h"
#include "core/base/types.h"
#include "core/ops/adamw.h"

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

using ops::AdamWCoefficients;
using ops::AdamWSlice;

/// @param clip    ClipDecision::factor
/// @param step    1 for the first applied update (skipped steps do not count)
/// @param decays  ParamDesc::decay
/// @throws UserError when lr is negative or so large that lr * weight_decay exceeds 1, or the
///         options are not valid
AdamWCoefficients adamw_coefficients(const AdamWOptions& options, double lr, double clip,
                                     std::int64_t step, bool decays);

/// Updates weights and moments of a slice in place, on the calling thread.
void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients);

/// The same over all threads of `pool`, cut into pieces of kUpdatePiece elements.
inline constexpr Index kUpdatePiece = Index{1} << 16;
void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients, ThreadPool& pool);

/// The instruction set that adamw_update runs on here ("AVX3", "AVX2", "NEON", "portable", ...).
const char* adamw_target();

}  // namespace megatrain
