#pragma once
/// @file
/// Global-norm clipping (Pascanu et al. 2013, algorithm 1) and the decision about a step.

#include <span>

namespace megatrain {

/// What the whole model's gradient says about a step.
struct ClipDecision {
  double norm = 0;     ///< global L2 norm; not finite when an element was not
  double factor = 1;   ///< multiplies every gradient; in (0, 1]
  bool apply = true;   ///< false: the step is skipped before any state is written
};

/// Sums the squared-norm partials in the order given, in fp64.
/// @param max_norm  <= 0: no clipping (factor 1; a non-finite norm still skips)
ClipDecision clip(std::span<const double> squared_norms, double max_norm);

}  // namespace megatrain
