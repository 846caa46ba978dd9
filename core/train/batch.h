#pragma once
/// @file
/// From samples to the tokens of a step, in the layout that a plan uploads.

#include <span>
#include <vector>

#include "core/engine/step.h"
#include "core/plan/layout.h"
#include "core/train/token_source.h"

namespace megatrain {

/// A step's tokens and what the host derived from them. Owns what StepInputs points to, so it can
/// move but not be copied.
struct Batch {
  Batch() = default;
  Batch(Batch&&) = default;
  Batch& operator=(Batch&&) = default;

  std::vector<std::int32_t> tokens;
  StepInputs inputs;
  Index valid_tokens = 0;  ///< targets that count
};

/// What the loss and every gradient are multiplied with: 1 / the valid tokens of the whole step, of
/// all ranks; 0 where there are none.
float token_scale(Index valid_tokens);

/// Which of the sequences of a step are a rank's: the rank-th of `ranks` equal runs.
struct DataShare {
  Index rank = 0;
  Index ranks = 1;
};

/// Lays out sequences of sequence + 1 tokens: micro-batch m holds sequences
/// [m * batch, (m + 1) * batch). Target i of a sequence is its token i + 1; a negative one does not
/// count.
/// @param sequences  the step's, one after another; (sequence + 1) tokens each
Batch make_batch(const Choices& choices, const ModelConfig& config,
                 std::span<const std::int32_t> sequences);

/// A rank's share of a step's batch in data order: of samples [first_sample, first_sample + n) of
/// the shuffled stream, n the sequences of a step of all ranks.
Batch training_batch(const Choices& choices, const ModelConfig& config, const TokenSource& source,
                     std::uint64_t seed, Index first_sample, const DataShare& share = {});

/// A rank's share of samples first .. of `source` in their own order; places past its end do not
/// count.
Batch evaluation_batch(const Choices& choices, const ModelConfig& config, const TokenSource& source,
                       Index first_sample, const DataShare& share = {});

}  // namespace megatrain
