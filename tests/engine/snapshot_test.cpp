/// @file
/// The state of a step, handed to a reader while training goes on: whole, unmixed, and training
/// knows nothing of it.

#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kSteps = 4;

/// The state after each step, by flushing after each.
std::vector<Snapshot> states(const PlanCase& c) {
  Rig rig(c.config, c.choices);
  std::vector<Snapshot> all;
  for (Index n = 0; n < kSteps; ++n) {
    rig.step(n);
    rig.engine->flush();
    all.push_back(rig.snapshot());
  }
  return all;
}

void expect_state(const CopyingReader& reader, const Snapshot& expected) {
  EXPECT_TRUE(reader.bytes() == expected.bytes);
}

class Snapshots : public ::testing::TestWithParam<PlanCase> {
 protected:
  const PlanCase& c() const { return GetParam(); }
};

TEST_P(Snapshots, OfConsecutiveStepsAreTheirStates) {
  const std::vector<Snapshot> expected = states(c());
  Rig rig(c().config, c().choices);
  std::vector<std::unique_ptr<CopyingReader>> readers;
  for (Index n = 0; n < kSteps; ++n) {
    rig.step(n);
    rig.engine->snapshot(*readers.emplace_back(rig.reader()));
  }
  rig.engine->finish_snapshot();
  for (std::size_t n = 0; n < readers.size(); ++n) expect_state(*readers[n], expected[n]);
  EXPECT_TRUE(rig.snapshot() == expected.back());
}

TEST_P(Snapshots, AStepRunsWhileAReaderIsStillInItsFirstUnit) {
  const std::vector<Snapshot> expected = states(c());
  Rig rig(c().config, c().choices);
  const auto slow = rig.reader(1e-3);
  rig.step(0);
  slow->hold();
  rig.engine->snapshot(*slow);
  rig.step(1);
  EXPECT_EQ(slow->units(), 0);
  slow->let_go();
  // The updates of step 1 come unit by unit as the reader leaves.
  for (Index n = 2; n < kSteps; ++n) rig.step(n);
  rig.engine->flush();
  rig.engine->finish_snapshot();
  expect_state(*slow, expected[0]);
  EXPECT_TRUE(rig.snapshot() == expected.back());
}

TEST_P(Snapshots, EvaluationAndTheStepAfterItNeedNotWait) {
  const std::vector<Snapshot> expected = states(c());
  Rig rig(c().config, c().choices);
  const Batch batch = rig.batch(9);
  const auto slow = rig.reader(1e-3);
  rig.step(0);
  slow->hold();
  rig.engine->snapshot(*slow);
  rig.engine->evaluate(batch.inputs);
  rig.step(1);  // evaluation has flushed: there is nothing to update
  EXPECT_EQ(slow->units(), 0);
  slow->let_go();
  rig.step(2);
  rig.engine->evaluate(batch.inputs);
  rig.step(3);
  rig.engine->flush();
  rig.engine->finish_snapshot();
  expect_state(*slow, expected[0]);
  EXPECT_TRUE(rig.snapshot() == expected.back());
}

INSTANTIATE_TEST_SUITE_P(Plans, Snapshots, ::testing::ValuesIn(training_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Snapshot, AfterASkippedStepIsTheStateBeforeIt) {
  const PlanCase c = case_named("tied");
  const std::vector<Snapshot> expected = states(c);
  for (const bool step_follows : {true, false}) {
    Rig rig(c.config, c.choices);
    const auto reader = rig.reader();
    rig.step(0);
    rig.step(1, std::numeric_limits<float>::infinity());
    rig.engine->snapshot(*reader);
    if (step_follows) rig.step(2);
    rig.engine->finish_snapshot();
    expect_state(*reader, expected[0]);
  }
}

TEST(Snapshot, BeforeTheFirstStepIsTheInitialState) {
  const PlanCase c = case_named("split_masters");
  Rig rig(c.config, c.choices);
  const Snapshot initial = rig.snapshot();
  const auto first = rig.reader();
  const auto second = rig.reader();
  first->hold();
  rig.engine->snapshot(*first);
  rig.engine->flush();
  rig.engine->snapshot(*second);
  rig.step(0);
  first->let_go();
  rig.engine->finish_snapshot();
  expect_state(*first, initial);
  expect_state(*second, initial);
}

TEST(Snapshot, AFlushAfterAFlushHandsOverTheSameState) {
  const PlanCase c = case_named("rows_tied_waves");
  const std::vector<Snapshot> expected = states(c);
  Rig rig(c.config, c.choices);
  const auto first = rig.reader();
  const auto second = rig.reader(1e-3);
  rig.step(0);
  first->hold();
  rig.engine->snapshot(*first);
  rig.engine->flush();
  rig.engine->snapshot(*second);
  rig.engine->flush();
  rig.step(1);
  EXPECT_EQ(first->units() + second->units(), 0);
  first->let_go();
  rig.engine->flush();  // the update of step 1 waits for both, unit by unit
  EXPECT_TRUE(rig.snapshot() == expected[1]);
  rig.engine->finish_snapshot();
  expect_state(*first, expected[0]);
  expect_state(*second, expected[0]);
}

TEST(Snapshot, FinishHandsOverWhatWasNotBegun) {
  const PlanCase c = case_named("plain");
  const std::vector<Snapshot> expected = states(c);
  Rig rig(c.config, c.choices);
  rig.engine->finish_snapshot();  // nothing was asked for
  const auto reader = rig.reader(1e-3);
  rig.step(0);
  rig.engine->snapshot(*reader);
  rig.engine->finish_snapshot();
  EXPECT_EQ(reader->units(), rig.model.unit_count());
  expect_state(*reader, expected[0]);
}

TEST(Snapshot, OneReaderAtATimeWaits) {
  const PlanCase c = case_named("plain");
  Rig rig(c.config, c.choices);
  const auto first = rig.reader();
  const auto second = rig.reader();
  rig.engine->snapshot(*first);
  EXPECT_THROW(rig.engine->snapshot(*second), LogicError);
  rig.step(0);
  rig.engine->snapshot(*second);
  rig.engine->finish_snapshot();
  EXPECT_EQ(first->units(), rig.model.unit_count());
  EXPECT_EQ(second->units(), rig.model.unit_count());
}

TEST(Snapshot, AnEngineThatGoesFinishesWhatItBegan) {
  const PlanCase c = case_named("waves");
  const std::vector<Snapshot> expected = states(c);
  Rig rig(c.config, c.choices);
  const auto begun = rig.reader(2e-3);
  const auto waiting = rig.reader();
  rig.step(0);
  rig.engine->snapshot(*begun);
  rig.step(1);
  rig.engine->snapshot(*waiting);
  rig.engine.reset();
  expect_state(*begun, expected[0]);
  EXPECT_EQ(waiting->units(), 0);
}

TEST(Snapshot, IsInTheTraceOfItsStep) {
  const PlanCase c = case_named("plain");
  Rig rig(c.config, c.choices);
  const auto reader = rig.reader(1e-3);
  rig.step(0);
  rig.engine->snapshot(*reader);
  Trace trace;
  rig.step(1, 1, &trace);
  EXPECT_GT(trace.busy(StreamId::snapshot), 0);
  EXPECT_NE(trace.to_json().find("\"snapshot block 3\""), std::string::npos);
}

}  // namespace
}  // namespace megatrain::testing
