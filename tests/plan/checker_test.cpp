#include "core/plan/checker.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

Plan plan_of(std::string_view name) {
  const PlanCase c = case_named(name);
  return make_plan(Model(c.config), c.choices);
}

std::size_t find(const Plan& plan, OpCode op, std::size_t nth = 0) {
  for (std::size_t i = 0; i < plan.body.instructions.size(); ++i)
    if (plan.body.instructions[i].op == op && nth-- == 0) return i;
  throw LogicError("no such instruction");
}

/// Points an operand elsewhere.
void redirect(Plan& plan, std::size_t instruction, Role role, BufferId to) {
  const Instruction& i = plan.body.instructions[instruction];
  for (std::uint32_t o = i.operands_begin; o < i.operands_end; ++o)
    if (plan.body.operands[o].role == role) plan.body.operands[o].buffer = to;
}

void expect_refused(const Plan& plan, std::string_view with) {
  const std::string text = check(plan).text();
  EXPECT_NE(text.find(with), std::string::npos) << text;
}

TEST(Checker, RefusesAFetchIntoASlotInUse) {
  Plan plan = plan_of("plain");
  const std::size_t first = find(plan, OpCode::fetch, 1);
  const std::size_t second = find(plan, OpCode::fetch, 2);
  const BufferId slot = plan.body.buffer(plan.body.instructions[first], Role::weights);
  redirect(plan, second, Role::weights, slot);
  expect_refused(plan, "slot");
}

TEST(Checker, RefusesWeightsOlderThanTheUpdate) {
  Plan plan = plan_of("plain");
  // The update of block 0 moves behind its first fetch.
  auto& list = plan.body.instructions;
  const std::size_t update = find(plan, OpCode::update, 1);
  const std::size_t fetch = find(plan, OpCode::fetch, 1);
  ASSERT_EQ(list[update].unit, list[fetch].unit);
  ASSERT_LT(update, fetch);
  std::swap(list[update], list[fetch]);
  expect_refused(plan, "version");
}

TEST(Checker, RefusesAGradientThatForgetsAMicroBatch) {
  Plan plan = plan_of("plain");
  plan.body.instructions[find(plan, OpCode::backward, 1)].accumulate = false;
  expect_refused(plan, "overwrites the gradient of earlier ones");
}

TEST(Checker, RefusesAWrongBoundary) {
  Plan plan = plan_of("plain");
  const std::size_t a = find(plan, OpCode::recompute, 0);
  const std::size_t b = find(plan, OpCode::recompute, 1);
  redirect(plan, a, Role::input, plan.body.buffer(plan.body.instructions[b], Role::input));
  expect_refused(plan, "boundary");
}

TEST(Checker, RefusesASlotThatIsNeverReleased) {
  Plan plan = plan_of("plain");
  std::size_t last = 0;
  for (std::size_t i = 0; i < plan.body.instructions.size(); ++i)
    if (plan.body.instructions[i].op == OpCode::release) last = i;
  Instruction& release = plan.body.instructions[last];
  release.op = OpCode::zero;
  const std::uint32_t o = release.operands_begin;
  plan.body.operands[o].role = Role::destination;
  plan.body.operands[o].buffer = 0;
  EXPECT_FALSE(check(plan).ok());
}

TEST(Checker, RefusesHostWorkThatWaitsForTheDevice) {
  Plan plan = plan_of("plain");
  const std::size_t update = find(plan, OpCode::update, 3);
  // An update that waits for the upload before it.
  Instruction& i = plan.body.instructions[update];
  const auto upload = static_cast<std::int32_t>(find(plan, OpCode::upload));
  plan.body.waits.push_back({upload, 0});
  const std::uint32_t end = static_cast<std::uint32_t>(plan.body.waits.size());
  i.waits_begin = end - 1;
  i.waits_end = end;
  expect_refused(plan, "waits for the device inside a step");
}

TEST(Checker, RefusesAnUnfinishedGradient) {
  Plan plan = plan_of("one_staging");
  const std::size_t offload = find(plan, OpCode::offload, 1);
  plan.body.instructions[offload].first += 1;
  EXPECT_FALSE(check(plan).ok());
}

TEST(Checker, RefusesSlicesThatAreNotGathered) {
  Plan plan = plan_of("shards");
  const std::size_t gather = find(plan, OpCode::all_gather, 1);
  const std::size_t fetch = find(plan, OpCode::fetch, 1);
  ASSERT_EQ(plan.body.instructions[gather].unit, plan.body.instructions[fetch].unit);
  std::swap(plan.body.instructions[gather], plan.body.instructions[fetch]);
  expect_refused(plan, "a slice of the weights");
}

TEST(Checker, RefusesAGradientThatIsNotSummed) {
  Plan plan = plan_of("hybrid_tied");
  std::swap(plan.body.instructions[find(plan, OpCode::reduce_scatter, 1)].op,
            plan.body.instructions[find(plan, OpCode::all_reduce, 1)].op);
  expect_refused(plan, "of this rank, expected the sum of the shard group");
}

TEST(Checker, RefusesAGradientThatIsSummedTwice) {
  Plan plan = plan_of("hybrid_tied");
  plan.body.instructions[find(plan, OpCode::all_reduce, 1)].op = OpCode::reduce_scatter;
  expect_refused(plan, "of the shard group, expected the sum of this rank");
}

/// What a slice comes back to must be zero, or the next sum counts it again.
TEST(Checker, RefusesACarryOnTopOfOldValues) {
  Plan plan = plan_of("shards_tied_waves");
  const std::size_t carry = find(plan, OpCode::carry_up, 0);
  ASSERT_EQ(plan.body.instructions[carry - 1].op, OpCode::zero);
  std::swap(plan.body.instructions[carry - 1], plan.body.instructions[carry]);
  expect_refused(plan, "not cleared");
}

TEST(Checker, RefusesASnapshotBeforeItsUpdate) {
  Plan plan = plan_of("plain");
  auto& list = plan.body.instructions;
  std::swap(list[find(plan, OpCode::update, 2)], list[find(plan, OpCode::snapshot, 2)]);
  expect_refused(plan, "hands over version 0 of the state, expected 1");
}

TEST(Checker, RefusesUnitsHandedOverOutOfTurn) {
  Plan plan = plan_of("plain");
  // ... update 2, update 3, snapshot 3, snapshot 2 ...
  const auto snapshot =
      std::ranges::find(plan.epilogue, static_cast<std::int32_t>(find(plan, OpCode::snapshot, 2)));
  std::rotate(snapshot, snapshot + 1, snapshot + 3);
  expect_refused(plan, "a reader expects unit 2 next");
}

TEST(Checker, RefusesAnUnorderedSnapshot) {
  for (const OpCode late : {OpCode::snapshot, OpCode::update}) {
    Plan plan = plan_of("plain");
    Instruction& i = plan.body.instructions[find(plan, late, 4)];
    i.waits_end = i.waits_begin;
    expect_refused(plan, "race on 'optimizer state of block 3'");
  }
}

TEST(Checker, RefusesAnEpilogueThatLeavesAUnitOut) {
  Plan plan = plan_of("plain");
  plan.epilogue.pop_back();
  expect_refused(plan, "6 of 7 units were handed over");
}

TEST(Checker, RefusesAnEpilogueThatWaitsForWhatIsNotInIt) {
  Plan plan = plan_of("plain");
  plan.epilogue.erase(plan.epilogue.begin());
  expect_refused(plan, "of the epilogue waits for");
}

TEST(Checker, RefusesTheIssuingThreadWaitingForAReader) {
  Plan plan = plan_of("plain");
  Instruction& i = plan.body.instructions[find(plan, OpCode::fetch, 1)];
  const auto snapshot = static_cast<std::int32_t>(find(plan, OpCode::snapshot, 1));
  plan.body.waits.push_back({snapshot, 0});
  i.waits_end = static_cast<std::uint32_t>(plan.body.waits.size());
  i.waits_begin = i.waits_end - 1;
  expect_refused(plan, "makes the issuing thread wait for a reader");
}

}  // namespace
}  // namespace megatrain::testing
