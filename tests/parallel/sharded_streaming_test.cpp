/// @file
/// Several ranks train what one would: sharded streaming, data parallelism, and both.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/plan/checker.h"
#include "parallel/conformance/recording_communicator.h"
#include "tests/parallel/idle_communicator.h"
#include "tests/parallel/rank_outcome.h"

namespace megatrain::testing {
namespace {

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
  expect_close(run(c, {1, 2}), run(c, {1, 1}), bound_of(c.choices));
}

INSTANTIATE_TEST_SUITE_P(Plans, Sharded, ::testing::ValuesIn(sharded_cases()),
                         [](const auto& test) { return test.param.name; });

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

/// Who decides together waits for each group once.
TEST(Ranks, AStepEndsWithOneExchangeOfEachGroup) {
  const PlanCase c = with_ranks(case_named("plain"));
  const RankLayout layout{2, 2};
  const auto failures = on_ranks(layout, [&](int rank, const DataRanks& ranks, StepGroups own) {
    std::vector<Call> of_shards;
    std::vector<Call> of_replicas;
    own.scatter = conformance::record_calls(std::move(own.scatter), of_shards);
    own.replicas = conformance::record_calls(std::move(own.replicas), of_replicas);
    Rig rig(c.config, share_of(c.choices, layout, rank), {}, std::move(own), ranks.share());
    rig.step(0);
    for (const auto* calls : {&of_shards, &of_replicas})
      EXPECT_EQ(std::ranges::count(*calls, Collective::sum, &Call::collective), 1);
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

TEST(Ranks, OneThatFailsEndsTheStepOfAll) {
  const PlanCase c = with_ranks(case_named("plain"));
  const RankLayout layout{2, 2};
  const auto failures = on_ranks(layout, [&](int rank, const DataRanks& ranks, StepGroups own) {
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

/// A collective of a GPU that is aborted leaves garbage behind, and an event that is reached.
class Aborted final : public IdleCommunicator {
 public:
  explicit Aborted(const bool& failed) : failed_(failed) {}
  void check() override {
    if (failed_) throw PeerError("rank 1 is gone", {1});
  }

 private:
  const bool& failed_;
};

TEST(Ranks, NoUpdateFollowsFromWhatAnAbortedCollectiveLeaves) {
  const PlanCase c = with_ranks(case_named("plain"));
  for (const bool gathers : {false, true}) {
    bool failed = false;
    StepGroups groups = StepGroups::alone();
    (gathers ? groups.gather : groups.replicas) = std::make_unique<Aborted>(failed);
    Rig rig(c.config, c.choices, {}, std::move(groups));
    EXPECT_TRUE(rig.step(0).decision.apply);
    rig.engine->flush();
    const Snapshot before = rig.snapshot();
    failed = true;
    EXPECT_THROW(rig.step(1), PeerError);
    EXPECT_THROW(rig.engine->evaluate(rig.batch(1).inputs), PeerError);
    rig.engine->flush();
    EXPECT_TRUE(rig.snapshot() == before);
    EXPECT_EQ(rig.engine->applied_steps(), 1);
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
