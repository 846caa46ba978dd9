#pragma once
/// @file
/// Everything that training carries from step to step besides the host store.

#include <cstdint>

#include "core/base/types.h"

namespace megatrain {

struct TrainState {
  Index step = 0;            ///< steps done, skipped ones included: the place in the schedule
  Index samples = 0;         ///< drawn from the data order, which follows from them and the seed
  Index tokens = 0;          ///< valid tokens trained on
  std::int64_t applied = 0;  ///< updates applied: AdamW's step count
  Index skipped = 0;         ///< steps skipped for a non-finite norm
  Index skipped_in_a_row = 0;
  double last_loss = 0;        ///< of the last step that was not skipped
  double last_norm = 0;        ///< of its gradient, before clipping
  double best_evaluation = 0;  ///< lowest held-out loss, 0 before the first
  Index best_evaluation_step = 0;
  bool evaluation_due = false;  ///< of this step, but training was stopped before or in it
  bool operator==(const TrainState&) const = default;
};

/// Calls visit(name, field) for every field, in order: what is saved and restored. A field that is
/// missing here does not compile.
template <class State, class Visit>
void for_each_field(State& state, Visit&& visit) {
  auto& [step, samples, tokens, applied, skipped, skipped_in_a_row, last_loss, last_norm,
         best_evaluation, best_evaluation_step, evaluation_due] = state;
  visit("step", step);
  visit("samples", samples);
  visit("tokens", tokens);
  visit("applied", applied);
  visit("skipped", skipped);
  visit("skipped_in_a_row", skipped_in_a_row);
  visit("last_loss", last_loss);
  visit("last_norm", last_norm);
  visit("best_evaluation", best_evaluation);
  visit("best_evaluation_step", best_evaluation_step);
  visit("evaluation_due", evaluation_due);
}

}  // namespace megatrain
