/// @file
/// Every layout of ranks trains what one rank would, and its plans agree on every bit.

#include <gtest/gtest.h>

#include "tests/parallel/rank_outcome.h"

namespace megatrain::testing {
namespace {

class ShardedBits : public ::testing::TestWithParam<PlanCase> {};

/// The equality rule holds for every layout of ranks: memory and time change no bit.
TEST_P(ShardedBits, SameKeySameBits) {
  const PlanCase& c = GetParam();
  PlanCase plain = with_ranks(case_named(c.config.tied_embeddings ? "tied" : "plain"));
  plain.choices.waves = c.choices.waves;
  plain.choices.compute = c.choices.compute;
  plain.choices.master = c.choices.master;
  plain.choices.moments = c.choices.moments;
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

INSTANTIATE_TEST_SUITE_P(Plans, ShardedBits, ::testing::ValuesIn(sharded_cases()),
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

}  // namespace
}  // namespace megatrain::testing
