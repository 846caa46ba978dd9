/// @file
/// The equality rule: what saves memory or time changes no bit.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kSteps = 3;

/// The same numerics key with nothing saved: everything on the device, one wave if the key lets it.
Snapshot reference(const PlanCase& c, const RigOptions& options = {}) {
  Choices plain = plan_grid().front().choices;
  plain.micro_batches = c.choices.micro_batches;
  if (c.config.tied_embeddings) plain.waves = c.choices.waves;
  plain.compute = c.choices.compute;
  plain.master = c.choices.master;
  plain.moments = c.choices.moments;
  EXPECT_EQ(numerics_key(plain, Model(c.config), "test"),
            numerics_key(c.choices, Model(c.config), "test"));
  return Rig(c.config, plain, options).run(kSteps);
}

class Equality : public ::testing::TestWithParam<PlanCase> {};

TEST_P(Equality, SameKeySameBits) {
  const PlanCase& c = GetParam();
  const Snapshot expected = reference(c);
  for (const double loss : expected.losses) ASSERT_TRUE(std::isfinite(loss));
  RigOptions options;
  options.poison = true;
  EXPECT_TRUE(Rig(c.config, c.choices, options).run(kSteps) == expected);
}

TEST_P(Equality, SlowCopiesChangeNothing) {
  const PlanCase& c = GetParam();
  RigOptions options;
  options.poison = true;
  options.slow_copies = 2e-4;
  options.device_threads = 2;
  options.update_threads = 2;
  EXPECT_TRUE(Rig(c.config, c.choices, options).run(2) == Rig(c.config, c.choices, {}).run(2));
}

INSTANTIATE_TEST_SUITE_P(Plans, Equality, ::testing::ValuesIn(training_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Threads, CountChangesNothing) {
  const PlanCase c = training_cases().front();
  const Snapshot one = Rig(c.config, c.choices).run(kSteps);
  for (const int threads : {2, 3}) {
    RigOptions options;
    options.device_threads = threads;
    options.update_threads = threads;
    EXPECT_TRUE(Rig(c.config, c.choices, options).run(kSteps) == one) << threads;
  }
}

/// The host's copy is behind until somebody asks, also when the last step was skipped and nothing
/// is pending; evaluation takes the device's memory, and the states come back to it.
TEST(DeviceStates, AreOnTheHostWheneverSomebodyLooks) {
  const PlanCase on_device = case_named("device_states_all");
  const auto run = [&](const Choices& choices) {
    Rig rig(on_device.config, choices);
    std::vector<Snapshot> seen;
    const auto look = [&] {
      rig.engine->flush();
      seen.push_back(rig.snapshot());
    };
    const auto hand_over = [&] {
      const auto reader = rig.reader();
      rig.engine->snapshot(*reader);
      rig.engine->finish_snapshot();
      seen.emplace_back().handed_over = reader->bytes();
    };
    hand_over();
    rig.step(0);
    rig.step(1);
    rig.step(2, std::numeric_limits<float>::infinity());
    look();
    const Batch batch = rig.batch(7);
    const auto losses = rig.engine->evaluate(batch.inputs);
    Snapshot evaluated;
    evaluated.losses.assign(losses.begin(), losses.end());
    seen.push_back(evaluated);
    // While evaluation has the device's memory, readers get the host's copy.
    hand_over();
    rig.step(3);
    rig.step(4);
    hand_over();
    look();
    return seen;
  };
  EXPECT_TRUE(run(on_device.choices) == run(case_named("plain").choices));
}

/// Between keys: other micro-batches are other sums of the same products.
TEST(MicroBatches, AgreeWithinRounding) {
  const PlanCase c = training_cases().front();
  Choices halved = c.choices;
  halved.micro_batch.batch = 1;
  halved.micro_batches = 8;
  const Snapshot a = Rig(c.config, c.choices).run(kSteps);
  const Snapshot b = Rig(c.config, halved).run(kSteps);
  for (std::size_t s = 0; s < a.losses.size(); ++s) {
    EXPECT_NEAR(a.losses[s] / b.losses[s], 1, 1e-5);
    EXPECT_NEAR(a.norms[s] / b.norms[s], 1, 1e-4);
  }
}

}  // namespace
}  // namespace megatrain::testing
