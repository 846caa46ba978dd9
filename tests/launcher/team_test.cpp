/// @file
/// What the ranks of a training run agree on, with threads as ranks.

#include <gtest/gtest.h>

#include "launcher/session/replica_check.h"
#include "tests/parallel/meeting.h"
#include "tests/parallel/rank_rigs.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::launcher {
namespace {

using megatrain::testing::on_threads;
using megatrain::testing::RankLayout;

/// Runs body(rank, team) for every rank, `parts` of which have a part each of what one of the
/// layout has.
template <class Body>
std::vector<std::exception_ptr> with_teams(const RankLayout& layout, const Body& body,
                                           int parts = 1) {
  parallel::Words words;
  const int world = layout.ranks() * parts;
  parallel::RendezvousServer server(parallel::server_options(world, words));
  return on_threads(world, [&](int rank) {
    const parallel::ProcessPlace place = parallel::place_of(rank, world, server.port());
    Team team(place, divide(place, parts, layout.shards),
              {.patience = 60, .configuration = "the same"});
    body(rank, team);
  });
}

void expect_none(const std::vector<std::exception_ptr>& failures) {
  for (const std::exception_ptr& failure : failures)
    EXPECT_NO_THROW(if (failure) std::rethrow_exception(failure));
}

TEST(Team, AgreesOnTheLeastMemory) {
  expect_none(with_teams({1, 3}, [](int rank, Team& team) {
    Machine machine;
    machine.device_memory = 1000 - rank;
    machine.host_memory = 500 + rank;
    machine.device_reserve = Index{10} * rank;
    team.agree(machine);
    EXPECT_EQ(machine.device_memory, 998);
    EXPECT_EQ(machine.host_memory, 500);
    EXPECT_EQ(machine.device_reserve, 20);
    EXPECT_EQ(team.any("signals", rank == 1 ? 2 : 4), 6U);
    EXPECT_FALSE(team.all("well", rank != 2));
    EXPECT_EQ(team.leads(), rank == 0);
  }));
}

TEST(Team, OtherPlansAreRefusedByRank) {
  const auto failures = with_teams({2, 1}, [](int rank, Team& team) {
    team.require_same("the plan", rank == 0 ? "2 slots" : "3 slots");
  });
  for (const std::exception_ptr& failure : failures) {
    const std::string error =
        parallel::error_of<UserError>([&] { std::rethrow_exception(failure); });
    EXPECT_TRUE(parallel::says(error, "the plan of rank 1 differs"));
  }
}

TEST(Team, TheMinorityDiffers) {
  expect_none(with_teams({3, 2}, [](int rank, Team& team) {
    const auto differing = team.differing(team.ranks().replica_ranks(), "state",
                                          rank == 4 ? "odd" : std::to_string(rank % 2));
    EXPECT_EQ(differing, rank % 2 == 0 ? std::vector<int>{4} : std::vector<int>{});
  }));
}

TEST(Team, TheReplicasOfAPartAreCompared) {
  const auto one_differs = [](int rank, Team& team) {
    // Ranks 1, 5 and 9 have the second part of the first slice.
    const auto differing = team.differing(team.ranks().replica_ranks(), "state",
                                          rank == 9 ? "odd" : std::to_string(rank % 4));
    EXPECT_EQ(differing, rank % 4 == 1 ? std::vector<int>{9} : std::vector<int>{});
  };
  expect_none(with_teams({3, 2}, one_differs, 2));
}

TEST(Team, DividesTheModelAmongTheRanksOfANode) {
  const parallel::ProcessPlace place{
      .rank = 5, .world = 8, .local_rank = 1, .local_size = 4, .node = 1, .nodes = 2};
  const auto data = [](const parallel::ProcessPlace& of, Index parts, Index shard_group) {
    return divide(of, parts, shard_group).data();
  };
  EXPECT_EQ(data(place, 1, 0).slicing(), (Slicing{4, 1}));
  EXPECT_EQ(data(place, 1, 8).slicing(), (Slicing{8, 5}));
  EXPECT_EQ(data(place, 1, 1).replicas(), 8);
  EXPECT_THROW(divide(place, 1, 3), UserError);
  EXPECT_THROW(divide(place, 1, 16), UserError);
  // Nodes of different size: one group of all.
  parallel::ProcessPlace uneven = place;
  uneven.world = 7;
  EXPECT_EQ(data(uneven, 1, 0).slicing().count, 7);

  // Neighbours are parts, of which a node has two groups.
  EXPECT_EQ(divide(place, 2, 0).partition(), (Partition{2, 1}));
  EXPECT_EQ(data(place, 2, 0).slicing(), (Slicing{2, 0}));
  EXPECT_EQ(data(place, 2, 0).share().rank, 2);
  EXPECT_EQ(data(place, 2, 0).replicas(), 2);
  EXPECT_EQ(data(place, 2, 4).slicing(), (Slicing{4, 2}));
  EXPECT_EQ(divide(place, 2, 1).replica_ranks(), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(divide(place, 2, 2).replica_ranks(), (std::vector<int>{1, 5}));
  // One that takes a node, or two.
  EXPECT_EQ(data(place, 4, 0).slicing().count, 1);
  EXPECT_EQ(data(place, 8, 0).slicing().count, 1);
  EXPECT_EQ(divide(place, 8, 0).partition(), (Partition{8, 5}));
  EXPECT_THROW(divide(place, 3, 0), UserError);
  EXPECT_THROW(divide(place, 16, 0), UserError);
  EXPECT_THROW(divide(place, 2, 8), UserError);
}

/// One flipped bit of one moment on one rank is found at the next check, by rank and unit.
TEST(ReplicaCheck, NamesTheRankAndTheUnit) {
  const testing::PlanCase c = testing::case_named("plain");
  const RankLayout layout{3, 1};
  testing::LocalGroups groups;
  const auto failures = with_teams(layout, [&](int rank, Team& team) {
    Choices choices = c.choices;
    choices.micro_batches = 3;
    testing::Rig rig(c.config, testing::share_of(choices, layout, rank), {},
                     team.data().connect(groups.of(rank)), team.data().share());
    ReplicaCheck check(team, *rig.engine, *rig.store, rig.pool, 2);
    rig.step(0);
    check.after(1);  // not due
    rig.step(1);
    check.after(2);
    if (rank == 1) rig.store->exp_avg_sq(3)[68] ^= std::byte{1};
    check.after(3);
    const std::string error = parallel::error_of([&] { check.after(4); });
    EXPECT_TRUE(parallel::says(error, "block 2 on rank 1 is not"));
  });
  expect_none(failures);
}

/// Norms are on all parts; what is divided is each part's own.
TEST(ReplicaCheck, ComparesWhatAllPartsHold) {
  const testing::PlanCase c = testing::case_named("plain");
  const auto failures = with_teams(
      {1, 1},
      [&](int rank, Team& team) {
        testing::Rig rig(c.config, c.choices, {});
        ReplicaCheck check(team, *rig.engine, *rig.store, rig.pool, 1);
        const Unit& unit = rig.store->model().unit(3);
        const auto flip = [&](ParamRole role) {
          if (rank == 1) rig.store->exp_avg(3)[(unit.find(role)->offset + 5) * 4] ^= std::byte{1};
        };
        rig.step(0);
        check.after(1);
        flip(ParamRole::down);
        check.after(2);
        flip(ParamRole::middle_norm);
        const std::string error = parallel::error_of([&] { check.after(3); });
        EXPECT_TRUE(parallel::says(error, "all parts of the model hold"));
        EXPECT_TRUE(parallel::says(error, "block 2 on rank 1 is not"));
      },
      2);
  expect_none(failures);
}

}  // namespace
}  // namespace megatrain::launcher
