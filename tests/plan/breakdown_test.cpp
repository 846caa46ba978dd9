#include "core/plan/breakdown.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/plan/simulator.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

/// A plan and a trace of it, written down instruction by instruction.
class Script {
 public:
  Script() {
    rates.flops = rates.attention = rates.attention_backward = rates.device_bandwidth =
        rates.slab_bandwidth = 1;
  }

  /// @param after  instructions of this body that it waits for
  /// @returns its number
  std::int32_t add(OpCode op, StreamId stream, double begin, double end,
                   std::initializer_list<std::int32_t> after = {}, const Cost& cost = {}) {
    Instruction i{.op = op, .stream = stream, .cost = cost};
    i.waits_begin = static_cast<std::uint32_t>(plan.body.waits.size());
    for (const std::int32_t on : after) plan.body.waits.push_back({on, bodies_back_});
    i.waits_end = static_cast<std::uint32_t>(plan.body.waits.size());
    plan.body.instructions.push_back(i);
    trace.spans.push_back({"", stream, begin, end});
    return static_cast<std::int32_t>(trace.spans.size()) - 1;
  }
  std::int32_t compute(double begin, double end, std::initializer_list<std::int32_t> after = {}) {
    return add(OpCode::forward, StreamId::compute, begin, end, after, {.flops = 1});
  }
  std::int32_t fetch(double begin, double end, std::initializer_list<std::int32_t> after = {}) {
    return add(OpCode::fetch, StreamId::fetch, begin, end, after);
  }
  std::int32_t update(double begin, double end, std::initializer_list<std::int32_t> after = {}) {
    return add(OpCode::update, StreamId::update, begin, end, after);
  }
  /// What is added from now on waits for the body before.
  void wait_for_the_body_before() { bodies_back_ = 1; }

  /// The parts in order; expects that they add up to the step.
  std::array<double, kStepParts> parts() const {
    const StepBreakdown result = break_down(plan, trace, rates);
    EXPECT_NEAR(std::accumulate(result.parts.begin(), result.parts.end(), 0.0), result.seconds,
                1e-9);
    return result.parts;
  }

  Plan plan;
  Trace trace;
  Rates rates;

 private:
  std::int32_t bodies_back_ = 0;
};

using Parts = std::array<double, kStepParts>;  // products attention small recompute transfer
                                               // optimizer gaps

TEST(Breakdown, SharesOutABlockByRates) {
  Script script;
  script.rates = {.flops = 2,
                  .attention = 1,
                  .attention_backward = 0.5,
                  .device_bandwidth = 4,
                  .slab_bandwidth = 8};
  const Cost cost{.flops = 8, .attention_flops = 3, .device_bytes = 12};  // 4 s, 3 s, 3 s
  script.add(OpCode::forward, StreamId::compute, 0, 20, {}, cost);
  EXPECT_EQ(script.parts(), (Parts{8, 6, 6, 0, 0, 0, 0, 0}));
  script.add(OpCode::backward, StreamId::compute, 20, 33, {}, cost);  // 4 s, 6 s, 3 s
  EXPECT_EQ(script.parts(), (Parts{12, 12, 9, 0, 0, 0, 0, 0}));
  script.add(OpCode::recompute, StreamId::compute, 33, 40, {}, cost);
  const Cost walk{.device_bytes = 12, .slab_bytes = 16};
  EXPECT_EQ(compute_seconds({.op = OpCode::reduce, .cost = walk}, script.rates).total(), 3 + 2);
  script.add(OpCode::reduce, StreamId::compute, 40, 42, {}, walk);
  script.add(OpCode::release, StreamId::compute, 42, 42.5);
  EXPECT_EQ(script.parts(), (Parts{12, 12, 11.5, 7, 0, 0, 0, 0}));
}

TEST(Breakdown, AFetchThatIsLateIsExposed) {
  Script script;
  script.compute(0, 1);
  const auto fetch = script.fetch(0, 3);
  script.compute(3.5, 4, {fetch});
  EXPECT_EQ(script.parts(), (Parts{1.5, 0, 0, 0, 2, 0, 0, 0.5})) << "what is hidden does not count";
}

TEST(Breakdown, FetchesThatQueueAreExposedTogether) {
  Script script;
  script.fetch(0, 2);
  const auto second = script.fetch(2, 5);
  script.compute(5, 6, {second});
  EXPECT_EQ(script.parts(), (Parts{1, 0, 0, 0, 5, 0, 0, 0}));
}

TEST(Breakdown, AFetchThatWaitedForAnUpdateIsTheOptimizers) {
  Script script;
  const auto update = script.update(0, 2);
  const auto fetch = script.fetch(2.25, 3, {update});
  script.compute(3, 4, {fetch});
  EXPECT_EQ(script.parts(), (Parts{1, 0, 0, 0, 0.75, 0, 2, 0.25}));
}

TEST(Breakdown, AFetchThatWaitedForItsSlotIsATransferOnly) {
  Script script;
  script.compute(0, 2);
  const auto release = script.add(OpCode::release, StreamId::compute, 2, 2);
  const auto fetch = script.fetch(2.5, 3, {release});
  script.compute(3, 4, {fetch});
  EXPECT_EQ(script.parts(), (Parts{3, 0, 0, 0, 0.5, 0, 0, 0.5}));
}

TEST(Breakdown, AnIssuingThreadThatWaitsHoldsUpWhatComesAfter) {
  Script script;
  const auto update = script.update(0, 2);
  script.fetch(2, 9, {update});  // of another unit
  script.compute(2, 9);          // needs neither, but was enqueued behind
  EXPECT_EQ(script.parts(), (Parts{7, 0, 0, 0, 0, 0, 2, 0}));
}

TEST(Breakdown, WhatTheBodyBeforeDidIsNoReason) {
  Script script;
  script.compute(0, 1);
  const auto fetch = script.fetch(0, 3);
  script.wait_for_the_body_before();
  script.compute(3, 4, {fetch});
  EXPECT_EQ(script.parts(), (Parts{2, 0, 0, 0, 0, 0, 0, 2}));
}

TEST(Breakdown, TheEndOfAStepBelongsToIt) {
  Script script;
  const auto reduce = script.add(OpCode::reduce, StreamId::compute, 0, 1, {}, {.device_bytes = 1});
  const auto offload = script.add(OpCode::offload, StreamId::offload, 1, 5, {reduce});
  script.add(OpCode::collect, StreamId::host, 5.5, 6, {offload});
  EXPECT_EQ(script.parts(), (Parts{0, 0, 1, 0, 4, 0, 0, 1}));
}

TEST(Breakdown, GatheredRowsAreATransfer) {
  Script script;
  const auto gather = script.add(OpCode::gather, StreamId::update, 0, 1);
  const auto fetch = script.fetch(1, 2, {gather});
  const auto spill = script.add(OpCode::unspill, StreamId::spill, 2, 4, {fetch});
  script.compute(4, 5, {spill});
  EXPECT_EQ(script.parts(), (Parts{1, 0, 0, 0, 4, 0, 0, 0}));
}

TEST(Breakdown, ClocksThatDisagreeALittleLoseNothing) {
  Script script;
  const auto update = script.update(0.5, 2.1);        // ends after the fetch begins,
  const auto fetch = script.fetch(2, 3.2, {update});  // which ends after the kernel begins,
  script.compute(3, 4, {fetch});
  script.compute(3.9, 5);  // which overlaps the next
  const Parts parts = script.parts();
  for (const double part : parts) EXPECT_GE(part, 0);
  EXPECT_NEAR(parts[0], 2, 1e-9);
}

TEST(Breakdown, ATraceOfAnotherPlanIsRefused) {
  Script script;
  script.compute(0, 1);
  script.trace.spans.front().stream = StreamId::fetch;
  EXPECT_THROW((void)break_down(script.plan, script.trace, script.rates), LogicError);
  script.trace.spans.clear();
  EXPECT_THROW((void)break_down(script.plan, script.trace, script.rates), LogicError);
}

/// Rates at which nothing is slow but what a test slows down.
Rates fast_rates() {
  Rates rates;
  rates.flops = rates.attention = rates.attention_backward = 1e9;
  rates.device_bandwidth = rates.slab_bandwidth = rates.to_device = rates.to_host = 1e17;
  rates.update = rates.update_bf16_moments = 1e17;
  rates.peers = rates.network = rates.host_memory = 1e17;
  rates.launch = 1e-15;
  return rates;
}

class SimulatedBreakdown : public ::testing::TestWithParam<PlanCase> {};

TEST_P(SimulatedBreakdown, FindsWhatIsSlow) {
  const Plan plan = make_plan(Model(GetParam().config), GetParam().choices);
  const auto breakdown = [&](const Rates& rates) {
    const Simulation simulation = simulate(plan, rates);
    const StepBreakdown result = break_down(plan, simulation.trace, rates);
    EXPECT_NEAR(std::accumulate(result.parts.begin(), result.parts.end(), 0.0), result.seconds,
                1e-6 * result.seconds);
    EXPECT_NEAR(result.seconds, simulation.step_seconds, 1e-6 * result.seconds);
    for (const double part : result.parts) EXPECT_GE(part, 0);
    return result;
  };
  const StepBreakdown fast = breakdown(fast_rates());
  const double computes =
      fast.of(StepPart::products) + fast.of(StepPart::attention) + fast.of(StepPart::recompute);
  EXPECT_NEAR(computes, fast.seconds, 1e-3 * fast.seconds) << "all else is hidden";

  Rates rates = fast_rates();
  rates.to_device = 1e3;
  EXPECT_GT(breakdown(rates).of(StepPart::transfer), 10 * fast.seconds);
  rates = fast_rates();
  rates.update = rates.update_bf16_moments = 1e3;
  const StepBreakdown slow = breakdown(rates);
  const bool on_host = GetParam().choices.device_states < plan.units;
  EXPECT_EQ(slow.of(StepPart::optimizer) > 10 * fast.seconds, on_host);
  EXPECT_LT(slow.of(StepPart::transfer), 0.01 * fast.seconds);
  rates = fast_rates();
  rates.launch = 1;
  EXPECT_GT(breakdown(rates).of(StepPart::gaps), 10 * fast.seconds);
}

/// Ranks that wait for one another, as the plan of one of them shows it.
TEST(SimulatedRanks, WhatTheySendIsExposedWhereItIsSlow) {
  const PlanCase c = case_named("hybrid_tied");
  const Plan plan = make_plan(Model(c.config), c.choices);
  const auto communication = [&](const Rates& rates) {
    return break_down(plan, simulate(plan, rates).trace, rates).of(StepPart::communication);
  };
  const double fast = communication(fast_rates());
  Rates rates = fast_rates();
  rates.peers = 1e3;
  EXPECT_GT(communication(rates), fast + 1);
  rates = fast_rates();
  rates.network = 1e3;
  EXPECT_GT(communication(rates), fast + 1);
  // The ranks of a machine share its memory and its cores.
  rates = fast_rates();
  rates.host_memory = 2e3;
  EXPECT_NEAR(shared_by(rates, 2).to_device, 1e3, 1);
  for (const DType moments : {DType::f32, DType::bf16})
    EXPECT_NEAR(shared_by(rates, 2).update_of(MasterFormat::bf16, moments),
                rates.update_of(MasterFormat::bf16, moments) / 2, 1);
}

INSTANTIATE_TEST_SUITE_P(Grid, SimulatedBreakdown, ::testing::ValuesIn(training_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace megatrain::testing
