#pragma once
/// @file
/// What several ranks train, to be compared with what one does.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "tests/parallel/rank_rigs.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {

constexpr Index kSteps = 5;
/// Divides evenly among 1, 2, 3 and 4 ranks.
constexpr Index kMicroBatches = 12;

/// Sums of the same products in another order. AdamW turns the relative error of a gradient into
/// one of a step, of which there are five. bf16 rounds each gradient once more.
constexpr double kBound = 2e-5;
constexpr double kBf16Bound = 2e-4;
/// How many times as far moments in bf16 may be off: where another order of additions lands one on
/// the other of the two bf16 beside it, 2^-7 away at most, a step differs by as large a part.
constexpr double kBf16Moments = 10;
/// Masters in bf16 are themselves the other of two, 2^-7 of them away at most.
constexpr double kBf16Masters = 0x1p-7;

inline double bound_of(const Choices& choices) {
  if (choices.master == MasterFormat::bf16) return kBf16Masters;
  return (choices.compute.type == DType::f32 ? kBound : kBf16Bound) *
         (choices.moments == DType::f32 ? 1 : kBf16Moments);
}

/// What a run came to, put together from all ranks.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::vector<float>> masters;  ///< of each parameter
};

inline PlanCase with_ranks(PlanCase c) {
  c.choices.micro_batches = kMicroBatches;
  c.choices.micro_batch.batch = 1;
  return c;
}

/// The cases of the plan grid that several ranks can run.
inline std::vector<PlanCase> sharded_cases() {
  std::vector<PlanCase> cases;
  for (PlanCase& c : training_cases())
    if (c.choices.embedding == EmbeddingMode::table) cases.push_back(with_ranks(std::move(c)));
  return cases;
}

/// Trains kSteps. Checks what ranks must have in common: losses, norms, and replicas' slices.
template <class Groups = LocalGroups>
Outcome run(const PlanCase& c, const RankLayout& layout, const RigOptions& options = {},
            Groups&& groups = Groups()) {
  Outcome all;
  const Model model(c.config);
  for (const Unit& unit : model.units())
    for (const ParamDesc& param : unit.params)
      all.masters.emplace_back(static_cast<std::size_t>(param.elements()),
                               std::numeric_limits<float>::quiet_NaN());
  std::mutex mutex;
  with_rigs(
      c.config, c.choices, layout, options,
      [&](int rank, Rig& rig) {
        const Snapshot own = rig.run(kSteps);
        const std::lock_guard lock(mutex);
        if (all.losses.empty()) all.losses = own.losses, all.norms = own.norms;
        EXPECT_EQ(own.losses, all.losses) << "rank " << rank;
        EXPECT_EQ(own.norms, all.norms) << "rank " << rank;
        auto whole = all.masters.begin();
        for (Index u = 0; u < model.unit_count(); ++u)
          for (const ParamDesc& param : model.unit(u).params) {
            const ElementRange held = rig.store->held(u, param);
            std::vector<float> part(static_cast<std::size_t>(held.count()));
            rig.store->read_master(u, param, held.first, part);
            const auto place = whole->begin() + held.first;
            // Somebody has been there: a replica, which must have the same bits.
            if (!held.empty() && !std::isnan(*place)) {
              EXPECT_TRUE(std::equal(part.begin(), part.end(), place)) << param.name;
            }
            std::ranges::copy(part, place);
            ++whole;
          }
      },
      groups);
  for (const auto& param : all.masters)
    for (const float value : param) EXPECT_TRUE(std::isfinite(value)) << "nobody holds it";
  return all;
}

inline void expect_close(const Outcome& actual, const Outcome& expected, double bound) {
  for (std::size_t s = 0; s < expected.losses.size(); ++s) {
    EXPECT_NEAR(actual.losses[s] / expected.losses[s], 1, bound) << "step " << s;
    EXPECT_NEAR(actual.norms[s] / expected.norms[s], 1, bound) << "step " << s;
  }
  double largest = 0;
  double difference = 0;
  for (std::size_t p = 0; p < expected.masters.size(); ++p)
    for (std::size_t i = 0; i < expected.masters[p].size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected.masters[p][i])));
      difference = std::max(difference, std::abs(static_cast<double>(actual.masters[p][i]) -
                                                 static_cast<double>(expected.masters[p][i])));
    }
  EXPECT_LE(difference, bound * largest);
}

}  // namespace megatrain::testing
