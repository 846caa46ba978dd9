#include "core/optim/clip.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace megatrain {

ClipDecision clip(std::span<const double> squared_norms, double max_norm) {
  if (std::isnan(max_norm)) throw UserError("the clipping norm must be a number, not nan");
  double sum = 0;
  for (const double squared : squared_norms) sum += squared;

  ClipDecision decision;
  decision.norm = std::sqrt(sum);
  // A NaN norm fails every comparison, so the tests below are written to hold for good norms.
  decision.apply = decision.norm <= kLargestNorm;
  if (decision.apply && max_norm > 0)
    decision.factor = std::min(1.0, max_norm / (decision.norm + 1e-6));
  if (!(decision.norm * decision.factor <= kLargestClippedNorm)) decision.apply = false;
  return decision;
}

}  // namespace megatrain
