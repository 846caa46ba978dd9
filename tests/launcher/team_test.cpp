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

/// Runs body(rank, team) for every rank.
template <class Body>
std::vector<std::exception_ptr> with_teams(const RankLayout& layout, const Body& body,
                                           const std::string& configuration = "the same") {
  parallel::Words words;
  parallel::RendezvousServer server(parallel::server_options(layout.ranks(), words));
  return on_threads(layout.ranks(), [&](int rank) {
    const DataRanks ranks(rank, layout.ranks(), layout.shards);
    Team team(parallel::place_of(rank, layout.ranks(), server.port()), ranks,
              {.patience = 60, .configuration = configuration});
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
    machine.device_reserve = 10 * rank;
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
    const auto differing = team.differing("state", rank == 4 ? "odd" : std::to_string(rank % 2));
    EXPECT_EQ(differing, rank % 2 == 0 ? std::vector<int>{4} : std::vector<int>{});
  }));
}

TEST(Team, DividesTheModelAmongTheRanksOfANode) {
  const parallel::ProcessPlace place{
      .rank = 5, .world = 8, .local_rank = 1, .local_size = 4, .node = 1, .nodes = 2};
  EXPECT_EQ(divide(place, 0).slicing(), (Slicing{4, 1}));
  EXPECT_EQ(divide(place, 8).slicing(), (Slicing{8, 5}));
  EXPECT_EQ(divide(place, 1).replicas(), 8);
  EXPECT_THROW(divide(place, 3), UserError);
  EXPECT_THROW(divide(place, 16), UserError);
  // Nodes of different size: one group of all.
  parallel::ProcessPlace uneven = place;
  uneven.world = 7;
  EXPECT_EQ(divide(uneven, 0).slicing().count, 7);
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
    if (rank == 1) rig.store->exp_avg_sq(3)[17] = 1;
    check.after(3);
    const std::string error = parallel::error_of([&] { check.after(4); });
    EXPECT_TRUE(parallel::says(error, "block 2 on rank 1 is not"));
  });
  expect_none(failures);
}

}  // namespace
}  // namespace megatrain::launcher
