#pragma once
/// @file
/// Global-norm clipping (Pascanu et al. 2013, algorithm 1) and the decision about a step.

#include <span>

namespace megatrain {

/// Norms above this skip the step: an element so large may have rounded to infinity on a bf16 wire.
inline constexpr double kLargestNorm = 3e38;
/// Clipped norms above this skip the step: AdamW squares gradients in fp32, and below it no square
/// and no state overflows. Only reachable without clipping.
inline constexpr double kLargestClippedNorm = 1e19;

/// What the whole model's gradient says about a step.
struct ClipDecision {
  double norm = 0;    ///< global L2 norm; not finite when an element was not
  double factor = 1;  ///< multiplies every gradient; in (0, 1]
  bool apply = true;  ///< false: the step is skipped before any state is written
};

/// Sums the squared-norm partials in the order given, in fp64.
/// The factor is min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it.
/// @param max_norm  <= 0: no clipping (factor 1; a non-finite norm still skips)
/// @throws UserError when max_norm is NaN
ClipDecision clip(std::span<const double> squared_norms, double max_norm);

}  // namespace megatrain
