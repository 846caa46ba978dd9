// Checks our own parallelism with MegaTrain's conformance kit. Ranks are threads on the CPU, so
// this runs anywhere; a rank on a GPU would hand the same objects to its Engine.

#include <cstdio>
#include <exception>
#include <string>

#include "core/model/config.h"
#include "core/model/model.h"
#include "core/ops/reduce_gradient.h"
#include "parallel/conformance/training.h"
#include "two_step_parts.h"

namespace {

using namespace megatrain;
using conformance::ConjugatePair;
using conformance::Distance;
using conformance::Rank;
using conformance::Training;
using conformance::TrainingRank;

/// The ranks of this one's tensor line, connected for `what`.
std::unique_ptr<TwoStepParts> parts_of(Rank& rank, const std::string& what) {
  return std::make_unique<TwoStepParts>(
      rank.connect(what + " of " + rank.axes().line_name(rank.rank(), Axis::tensor),
                   rank.axes().line(rank.rank(), Axis::tensor)));
}

/// Sums of the same products in another order, which five updates carry on.
constexpr Distance kRounding{.loss = 1e-6, .norm = 2e-5, .gradient = 1e-4, .parameter = 1e-4};

/// A row-parallel linear's sum, forward, and nothing, backward.
ConjugatePair sum_over_parts() {
  constexpr Index kCount = 1001;
  return {.name = "sum over parts",
          .axis = Axis::tensor,
          .input = {.count = kCount},
          .output = {.count = kCount, .replicated = true},
          .forward =
              [](Rank& rank, const float* from, float* to) {
                const auto parts = parts_of(rank, "sum");
                rank.stream().copy(to, from, kCount * 4);
                parts->sum(rank.stream(), to, kCount, DType::f32);
                rank.stream().synchronize();
              },
          .backward = [](Rank& rank, const float* from,
                         float* to) { rank.stream().copy(to, from, kCount * 4); }};
}

/// The layers divided along the tensor axis, the steps along the data axis.
TrainingRank our_rank(Rank& rank) {
  TrainingRank own;
  auto parts = parts_of(rank, "parts");
  own.partition = parts->partition();
  own.groups.parts = std::move(parts);
  const std::vector<int> replicas = rank.axes().line(rank.rank(), Axis::data);
  own.share = {.rank = rank.along(Axis::data).rank(), .ranks = rank.along(Axis::data).size()};
  own.replicas = own.share.ranks;
  own.groups.replicas =
      rank.connect("replicas of part " + std::to_string(own.partition.index), replicas);
  return own;
}

Training small_training() {
  Training training;
  training.config = preset("llama-tiny");
  training.choices.micro_batch = {.batch = 1, .sequence = 16};
  training.choices.micro_batches = 4;
  training.rule.lr = 1e-3;
  training.choices.staging_elements =
      round_up(Model(training.config).max_block_elements(), ops::kNormChunk);
  return training;
}

}  // namespace

int main() {
  try {
    conformance::check_conjugate(conformance::along(Axis::tensor, 4), sum_over_parts());
    std::puts("the sum over four parts is conjugate to doing nothing");

    PerAxis<int> sizes(1);
    sizes[Axis::tensor] = 2;
    sizes[Axis::data] = 2;
    conformance::check_training({.axes = ProcessAxes(sizes)}, small_training(), our_rank,
                                kRounding);
    std::puts("two parts of a model, trained by two ranks each, are what one rank trains");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
