#pragma once
/// @file
/// What goes into one run of a body, and what comes out.

#include <span>
#include <vector>

#include "core/optim/clip.h"
#include "core/optim/unit_update.h"

namespace megatrain {

/// The tokens of a step in the layout that the plan uploads (BatchLayout per micro-batch).
struct StepInputs {
  /// Per micro-batch: ids, targets, and the tokens sorted by id for the embedding's backward.
  std::span<const std::int32_t> tokens;
  /// Distinct ids of each micro-batch.
  std::vector<Index> uniques;
  /// With EmbeddingMode::rows: the table rows that each wave needs; ids index this list.
  std::vector<std::vector<std::int32_t>> rows;
  /// 1 / valid tokens of the whole step (all ranks).
  float scale = 1;
  /// Generation: which token of each sequence the logits are for.
  Index position = 0;
};

}  // namespace megatrain
