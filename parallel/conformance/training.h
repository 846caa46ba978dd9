#pragma once
/// @file
/// The conformance kit for whole runs: what an extension trains must be what one rank trains.

#include <functional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/train/batch.h"
#include "parallel/conformance/conformance.h"

namespace megatrain::conformance {

/// A run, as one rank would make it.
struct Training {
  ModelConfig config;
  /// Of one rank; ranks that share steps do an equal share of the micro-batches each.
  Choices choices;
  Index steps = 5;
  UpdateRule rule = {.adamw = {}, .lr = 1e-2, .max_norm = 0.5};
  std::uint64_t seed = 7;
};

/// What a rank is in a run of several: all that an extension has to say.
struct TrainingRank {
  Partition partition = {};
  Slicing slicing = {};
  Index replicas = 1;
  DataShare share = {};
  StepGroups groups = StepGroups::alone();
};
using MakeRank = std::function<TrainingRank(Rank&)>;

/// A tensor of the whole model, put together from all ranks.
struct WholeTensor {
  std::string name;
  std::vector<float> values;
  bool operator==(const WholeTensor&) const = default;
};

/// What a run came to.
struct TrainingResult {
  std::vector<double> losses;  ///< the sum over the tokens of each step
  std::vector<double> norms;
  std::vector<WholeTensor> gradients;   ///< of the last step, as the optimizer gets them
  std::vector<WholeTensor> parameters;  ///< after the last step
  bool operator==(const TrainingResult&) const = default;
};

/// Trains on made-up tokens, with ranks as threads. Every element of every tensor must be held by
/// some rank, and have the same bits on all that hold it; losses and norms must have the same bits
/// on all ranks. @throws ConformanceError
TrainingResult train(const Setting& setting, const Training& training, const MakeRank& make_rank);

/// train() must come to the same as one rank: losses and norms within `bound` times their value, the
/// elements of a tensor within `bound` times its largest, or times a hundredth of the largest of all
/// tensors where that is more.
/// @throws ConformanceError, which names what differs
void check_training(const Setting& setting, const Training& training, const MakeRank& make_rank,
                    double bound);

/// The same for results that are at hand.
void check_close(const TrainingResult& result, const TrainingResult& expected, double bound);

}  // namespace megatrain::conformance
