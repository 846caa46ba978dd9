/// @file
/// Several ranks train what one would: sharded streaming, data parallelism, and both.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/plan/checker.h"
#include "tests/parallel/rank_rigs.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kSteps = 5;
/// Divides evenly among 1, 2, 3 and 4 ranks.
constexpr Index kMicroBatches = 12;

/// Sums of the same products in another order. AdamW turns the relative error of a gradient into
/// one of a step, of which there are five. bf16 rounds each gradient once more.
constexpr double kBound = 2e-5;
constexpr double kBf16Bound = 2e-4;

/// What a run came to, put together from all ranks.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::vector<float>> masters;  ///< of each parameter
};

PlanCase with_ranks(PlanCase c) {
  c.choices.micro_batches = kMicroBatches;
  c.choices.micro_batch.batch = 1;
  return c;
}

/// The cases of the plan grid that several ranks can run.
std::vector<PlanCase> sharded_cases() {
  std::vector<PlanCase> cases;
  for (PlanCase& c : training_cases())
    if (c.choices.embedding == EmbeddingMode::table) cases.push_back(with_ranks(std::move(c)));
  return cases;
}

Outcome run(const PlanCase& c, const RankLayout& layout, const RigOptions& options = {}) {
  Outcome all;
  const Model model(c.config);
  for (const Unit& unit : model.units())
    for (const ParamDesc& param : unit.params)
      all.masters.emplace_back(static_cast<std::size_t>(param.elements()),
                               std::numeric_limits<float>::quiet_NaN());
  std::mutex mutex;
  with_rigs(c.config, c.choices, layout, options, [&](int rank, Rig& rig) {
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
  });
  for (const auto& param : all.masters)
    for (const float value : param) EXPECT_TRUE(std::isfinite(value)) << "nobody holds it";
  return all;
}

void expect_close(const Outcome& actual, const Outcome& expected, double bound) {
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

class Sharded : public ::testing::TestWithParam<PlanCase> {};

TEST_P(Sharded, PlansAreProved) {
  const PlanCase& c = GetParam();
  const Model model(c.config);
  for (const RankLayout layout : {RankLayout{1, 2}, RankLayout{3, 1}, RankLayout{2, 2}})
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const CheckReport report = check(make_plan(model, share_of(c.choices, layout, rank)));
      EXPECT_TRUE(report.ok()) << report.text();
    }
}

TEST_P(Sharded, TrainsWhatOneRankTrains) {
  const PlanCase& c = GetParam();
  const double bound = c.choices.compute.type == DType::f32 ? kBound : kBf16Bound;
  expect_close(run(c, {1, 2}), run(c, {1, 1}), bound);
}

/// The equality rule holds for every layout of ranks: memory and time change no bit.
TEST_P(Sharded, SameKeySameBits) {
  const PlanCase& c = GetParam();
  PlanCase plain = with_ranks(case_named(c.config.tied_embeddings ? "tied" : "plain"));
  plain.choices.waves = c.choices.waves;
  plain.choices.compute = c.choices.compute;
  plain.choices.master = c.choices.master;
  const RankLayout layout{2, 2};
  const auto key = [&](const PlanCase& of) {
    return numerics_key(share_of(of.choices, layout, 0), Model(of.config), "test");
  };
  ASSERT_EQ(key(plain), key(c));
  const Outcome expected = run(plain, layout);
  const Outcome actual = run(c, layout, {.device_threads = 2, .poison = true, .slow_copies = 5e-5});
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.norms, expected.norms);
  EXPECT_TRUE(actual.masters == expected.masters);
}

INSTANTIATE_TEST_SUITE_P(Plans, Sharded, ::testing::ValuesIn(sharded_cases()),
                         [](const auto& test) { return test.param.name; });

class Layouts : public ::testing::TestWithParam<RankLayout> {};

TEST_P(Layouts, TrainWhatOneRankTrains) {
  for (const char* name : {"plain", "tied", "waves"}) {
    SCOPED_TRACE(name);
    const PlanCase c = with_ranks(case_named(name));
    expect_close(run(c, GetParam()), run(c, {1, 1}), kBound);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Layouts,
                         ::testing::Values(RankLayout{1, 2}, RankLayout{2, 1}, RankLayout{1, 3},
                                           RankLayout{3, 1}, RankLayout{1, 4}, RankLayout{2, 2},
                                           RankLayout{4, 1}),
                         [](const auto& test) {
                           return std::to_string(test.param.replicas) + "x" +
                                  std::to_string(test.param.shards);
                         });

/// What holds a rank up: its steps with an infinite loss scale.
TEST(Ranks, InfinityOnOneSkipsTheStepOnAll) {
  const PlanCase c = with_ranks(case_named("plain"));
  for (const RankLayout layout : {RankLayout{1, 3}, RankLayout{2, 2}})
    with_rigs(c.config, c.choices, layout, {}, [&](int rank, Rig& rig) {
      EXPECT_TRUE(rig.step(0).decision.apply);
      rig.engine->flush();
      const Snapshot before = rig.snapshot();
      const float scale = rank == 1 ? std::numeric_limits<float>::infinity() : 1;
      const StepResult result = rig.step(1, scale);
      EXPECT_FALSE(result.decision.apply);
      rig.engine->flush();
      EXPECT_TRUE(rig.snapshot() == before) << "rank " << rank;
      EXPECT_EQ(rig.engine->applied_steps(), 1);
      EXPECT_TRUE(rig.step(2).decision.apply);
    });
}

TEST(Ranks, OneThatFailsEndsTheStepOfAll) {
  const PlanCase c = with_ranks(case_named("plain"));
  const RankLayout layout{2, 2};
  LocalGroups groups;
  const auto failures = on_threads(layout.ranks(), [&](int rank) {
    const DataRanks ranks(rank, layout.ranks(), layout.shards);
    StepGroups own = ranks.connect(groups.of(rank));
    Communicator& scatter = *own.scatter;
    Rig rig(c.config, share_of(c.choices, layout, rank), {}, std::move(own), ranks.share());
    rig.step(0);
    if (rank == 3) {
      scatter.abort("the disk of rank 3 is on fire");
      throw Error("the disk is on fire");
    }
    rig.step(1);
  });
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    ASSERT_TRUE(failures[static_cast<std::size_t>(rank)]) << "rank " << rank;
    if (rank == 3) continue;
    // Ranks 0 and 1 hear of it from rank 2, with which rank 0 sums; 1 hears from 0 or 3.
    EXPECT_THROW(std::rethrow_exception(failures[static_cast<std::size_t>(rank)]), PeerError);
  }
}

TEST(Ranks, AStoreOfOtherSlicesIsRefused) {
  const PlanCase c = with_ranks(case_named("plain"));
  LocalGroups groups;
  const auto failures = on_threads(2, [&](int rank) {
    const DataRanks ranks(rank, 2, 2);
    Choices choices = share_of(c.choices, {1, 2}, 1 - rank);
    Rig(c.config, choices, {}, ranks.connect(groups.of(rank)), ranks.share());
  });
  for (const std::exception_ptr& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), LogicError);
  }
}

TEST(DataRanks, GroupsAreNeighbours) {
  const DataRanks ranks(5, 8, 4);
  EXPECT_EQ(ranks.slicing(), (Slicing{4, 1}));
  EXPECT_EQ(ranks.replicas(), 2);
  EXPECT_THROW(DataRanks(0, 6, 4), UserError);
  EXPECT_THROW(DataRanks(0, 6, 0), UserError);
}

}  // namespace
}  // namespace megatrain::testing
