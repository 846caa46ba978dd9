/// @file
/// Ranks that save while they train, end and resume give the bits of ranks that never stopped.

#include <gtest/gtest.h>

#include "io/checkpoint/background_save.h"
#include "io/checkpoint/state_load.h"
#include "tests/io/thread_peers.h"
#include "tests/parallel/rank_rigs.h"
#include "tests/plan/plan_grid.h"
#include "tests/temporary_folder.h"

namespace megatrain::testing {
namespace {

constexpr Index kSaved = 2, kSteps = 4;

struct Case {
  const char* plan;
  RankLayout layout;
  Index bytes_per_second = 0;
};
std::ostream& operator<<(std::ostream& stream, const Case& c) { return stream << c.plan; }

class RanksResume : public ::testing::TestWithParam<Case> {};

TEST_P(RanksResume, GivesTheBitsOfRanksThatNeverStopped) {
  const auto& [plan, layout, bytes_per_second] = GetParam();
  PlanCase c = case_named(plan);
  c.choices.micro_batches = 12;
  c.choices.micro_batch.batch = 1;
  std::vector<Snapshot> expected(static_cast<std::size_t>(layout.ranks()));
  with_rigs(c.config, c.choices, layout, {}, [&](int rank, Rig& rig) {
    expected[static_cast<std::size_t>(rank)].bytes = rig.run(kSteps).bytes;
  });

  const TemporaryFolder folder;
  io::PeerHub hub(layout.ranks());
  const auto run = [&](Index first, Index last, Rig& rig) {
    for (Index step = first; step < last; ++step) rig.step(step);
    rig.engine->flush();
  };
  with_rigs(c.config, c.choices, layout, {}, [&, rate = bytes_per_second](int rank, Rig& rig) {
    for (Index step = 0; step < kSaved; ++step) rig.step(step);
    io::BlockPool blocks(2);
    io::SaveOptions options{.folder = folder / "c",
                            .step = kSaved,
                            .shard_bytes = 50'000,
                            .bytes_per_second = rate,
                            .peers = &hub.of(rank),
                            .writes = rank < layout.shards};
    io::BackgroundSave save(*rig.store, options, blocks, 1);
    rig.engine->snapshot(save);
    // Saving while training goes on changes nothing.
    run(kSaved, kSteps, rig);
    rig.engine->finish_snapshot();
    save.wait();
    EXPECT_TRUE(rig.snapshot() == expected[static_cast<std::size_t>(rank)]) << "rank " << rank;
  });

  const io::Checkpoint checkpoint(folder / "c");
  with_rigs(c.config, c.choices, layout, {}, [&](int rank, Rig& rig) {
    io::load_state(checkpoint, *rig.store, io::LoadParts::all, rig.pool, {}, hub.of(rank));
    rig.engine->set_applied_steps(kSaved);
    run(kSaved, kSteps, rig);
    EXPECT_TRUE(rig.snapshot() == expected[static_cast<std::size_t>(rank)]) << "rank " << rank;
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, RanksResume,
                         ::testing::Values(Case{"plain", {1, 2}}, Case{"tied", {1, 3}},
                                           Case{"split_masters", {2, 2}},
                                           Case{"plain", {1, 2}, 1'000'000}),
                         [](const auto& test) {
                           const RankLayout& layout = test.param.layout;
                           return std::string(test.param.plan) + "_" +
                                  std::to_string(layout.replicas) + "x" +
                                  std::to_string(layout.shards) +
                                  (test.param.bytes_per_second > 0 ? "_slow_disk" : "");
                         });

}  // namespace
}  // namespace megatrain::testing
