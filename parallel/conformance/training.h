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
  /// With a large epsilon: AdamW would make whole steps of a gradient that is zero but for rounding
  /// (that of a key's bias, which softmax does not see), and two runs step in any two directions.
  UpdateRule rule = {.adamw = {.eps = 1e-4}, .lr = 1e-2, .max_norm = 0.5};
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

/// How far two results are apart, or may be: losses and norms in parts of their value, elements of
/// a tensor in parts of its largest, or of a hundredth of the largest of all tensors where that is
/// more.
struct Distance {
  double loss = 0, norm = 0, gradient = 0, parameter = 0;
  /// The same for all.
  static constexpr Distance all(double bound) { return {bound, bound, bound, bound}; }
};
/// The largest of each; not a number where one result has one and the other has not.
Distance distance(const TrainingResult& result, const TrainingResult& expected);

/// train() must come to the same as one rank, within `bound`; 0 asks for the same bits.
/// @throws ConformanceError, which names what differs most
void check_training(const Setting& setting, const Training& training, const MakeRank& make_rank,
                    const Distance& bound);

/// The same for results that are at hand.
void check_close(const TrainingResult& result, const TrainingResult& expected,
                 const Distance& bound);

}  // namespace megatrain::conformance
