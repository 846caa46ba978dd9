/// @file
/// Each feature of a plan, broken on purpose: the checker refuses it, and when it runs all the
/// same, the equality tests would see it. equality_test is the other half: unbroken, same bits.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/checker.h"
#include "core/plan/writers.h"
#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kSteps = 2;

/// The nth instruction of the body with this op.
Instruction& nth(Plan& plan, OpCode op, std::size_t n = 0) {
  for (Instruction& i : plan.body.instructions)
    if (i.op == op && n-- == 0) return i;
  throw LogicError("the plan has no such instruction");
}

BufferId& operand(Plan& plan, const Instruction& i, Role role) {
  for (std::uint32_t o = i.operands_begin; o < i.operands_end; ++o)
    if (plan.body.operands[o].role == role) return plan.body.operands[o].buffer;
  throw LogicError("the instruction has no such operand");
}

/// The first takes the second's operand of this role.
void confuse(Plan& plan, Instruction& first, Instruction& second, Role role) {
  operand(plan, first, role) = operand(plan, second, role);
}

/// Two instructions change places; the epilogue keeps its own.
void exchange(Plan& plan, Instruction& a, Instruction& b) {
  std::swap(a, b);
  const auto* list = plan.body.instructions.data();
  const auto first = static_cast<std::int32_t>(&a - list);
  const auto second = static_cast<std::int32_t>(&b - list);
  for (std::int32_t& n : plan.epilogue) n = n == first ? second : n == second ? first : n;
}

/// Instructions of one kind no longer wait for those of another.
void forget_waits(Plan& plan, OpCode of, OpCode on) {
  for (Instruction& i : plan.body.instructions) {
    if (i.op != of) continue;
    const auto kept = std::ranges::remove_if(
        std::span(plan.body.waits).subspan(i.waits_begin, i.waits_end - i.waits_begin),
        [&](const Wait& wait) {
          return plan.body.instructions[static_cast<std::size_t>(wait.instruction)].op == on;
        });
    i.waits_end -= static_cast<std::uint32_t>(kept.size());
  }
}

struct Fault {
  const char* name;
  const char* plan;  ///< of the grid
  void (*plant)(Plan&);
  double RigOptions::* slow = nullptr;  ///< what must be slow, or luck may hide it
};

const Fault kFaults[] = {
    {"a_forward_that_does_not_wait_for_its_fetch", "plain",
     [](Plan& p) {
       Instruction& i = nth(p, OpCode::forward, 4);
       i.waits_end = i.waits_begin;
     },
     &RigOptions::slow_copies},
    {"results_are_collected_without_waiting", "plain",
     [](Plan& p) {
       for (Instruction& i : p.body.instructions)
         if (i.op == OpCode::collect) i.waits_end = i.waits_begin;
     },
     &RigOptions::slow_copies},
    {"a_micro_batch_is_forgotten", "plain",
     [](Plan& p) { nth(p, OpCode::backward, 1).accumulate = false; }},
    {"a_boundary_comes_back_as_another", "spill_all",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::unspill, 5), nth(p, OpCode::unspill, 6), Role::source);
     }},
    {"a_segment_forgets_its_inner_boundary", "segments",
     [](Plan& p) {
       // Without an output operand a recompute skips the block's output.
       for (std::size_t n = 0;; ++n) {
         const Instruction& i = nth(p, OpCode::recompute, n);
         if (p.body.find(i, Role::output) < 0) continue;
         for (std::uint32_t o = i.operands_begin; o < i.operands_end; ++o)
           if (p.body.operands[o].role == Role::output) p.body.operands[o].role = Role::temporary;
         return;
       }
     }},
    {"a_carry_brings_another_unit", "waves",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::carry_up, 1), nth(p, OpCode::carry_up, 2), Role::host_gradient);
     }},
    {"a_resident_block_holds_another", "resident",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::fetch, 1), nth(p, OpCode::fetch, 2), Role::host_weights);
     }},
    {"rows_are_gathered_before_the_update", "rows",
     [](Plan& p) { exchange(p, nth(p, OpCode::gather), nth(p, OpCode::update)); }},
    {"what_was_kept_is_another_micro_batch", "keep",
     [](Plan& p) {
       for (std::size_t n = 0;; ++n) {
         Instruction& i = nth(p, OpCode::recompute, n);
         if (p.body.find(i, Role::kept) < 0) continue;
         confuse(p, i, nth(p, OpCode::recompute, n + 1), Role::kept);
         return;
       }
     }},
    {"what_was_kept_comes_back_as_another", "keep_all_on_host_waves",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::unspill, 2), nth(p, OpCode::unspill, 3), Role::source);
     }},
    {"the_tied_table_misses_the_tokens_share", "tied",
     [](Plan& p) {
       Instruction& i = nth(p, OpCode::embed_backward, 2);
       confuse(p, i, nth(p, OpCode::embed_backward, 1), Role::batch);
     }},
    {"a_unit_is_not_updated", "plain",
     [](Plan& p) { nth(p, OpCode::update, 2).unit = nth(p, OpCode::update, 3).unit; }},
    {"a_gradient_piece_goes_astray", "one_staging",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::offload, 0), nth(p, OpCode::offload, 8), Role::host_gradient);
     }},
    {"two_fetches_meet_in_a_slot", "three_slots",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::fetch, 2), nth(p, OpCode::fetch, 1), Role::weights);
     }},
    {"an_update_that_does_not_wait_for_the_snapshot_before_it", "plain",
     [](Plan& p) { forget_waits(p, OpCode::update, OpCode::snapshot); }, &RigOptions::slow_reader},
    {"a_snapshot_that_does_not_wait_for_its_update", "split_masters",
     [](Plan& p) { forget_waits(p, OpCode::snapshot, OpCode::update); }, &RigOptions::slow_updates},
    {"a_snapshot_before_its_update", "plain",
     [](Plan& p) {
       exchange(p, nth(p, OpCode::snapshot, 1), nth(p, OpCode::update, 1));
       forget_waits(p, OpCode::snapshot, OpCode::update);
     },
     &RigOptions::slow_updates},
    {"a_unit_on_the_device_is_not_updated", "device_states_all",
     [](Plan& p) {
       nth(p, OpCode::device_update, 2).unit = nth(p, OpCode::device_update, 3).unit;
     }},
    {"states_on_the_device_meet_anothers_gradient", "device_states_all",
     [](Plan& p) {
       confuse(p, nth(p, OpCode::device_update, 2), nth(p, OpCode::device_update, 3), Role::wire);
     }},
    {"a_snapshot_that_does_not_wait_for_what_comes_down", "device_states_some_tied",
     [](Plan& p) { forget_waits(p, OpCode::snapshot, OpCode::state_down); },
     &RigOptions::slow_copies},
    {"states_come_down_over_what_a_reader_still_reads", "device_states_embedding",
     [](Plan& p) { forget_waits(p, OpCode::state_down, OpCode::snapshot); },
     &RigOptions::slow_reader},
    {"a_unit_is_handed_over_twice", "tied",
     [](Plan& p) { nth(p, OpCode::snapshot, 2).unit = nth(p, OpCode::snapshot, 1).unit; }},
};

class Faults : public ::testing::TestWithParam<Fault> {};

TEST_P(Faults, TheCheckerRefusesIt) {
  const PlanCase c = case_named(GetParam().plan);
  Plan plan = make_plan(Model(c.config), c.choices);
  ASSERT_TRUE(check(plan).ok());
  GetParam().plant(plan);
  EXPECT_FALSE(check(plan).ok());
}

/// Whether steps of a broken plan end otherwise: the slots' owner throws, or other bits come out.
bool tells(const PlanCase& c, const Plan& broken, const RigOptions& options,
           const Snapshot& expected) {
  try {
    return !(run_unchecked(c.config, broken, kSteps, options) == expected);
  } catch (const LogicError&) {
    return true;
  }
}

TEST_P(Faults, TheBitsTell) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race itself is reported first: plan_race_test asks for that";
#endif
  const PlanCase c = case_named(GetParam().plan);
  RigOptions options;
  options.poison = true;
  Plan plan = make_plan(Model(c.config), c.choices);
  const Snapshot expected = run_unchecked(c.config, plan, kSteps, options);
  GetParam().plant(plan);
  if (GetParam().slow == nullptr) {
    EXPECT_TRUE(tells(c, plan, options, expected));
    return;
  }
  // What does not wait is late itself on a busy machine or under a sanitizer: then it takes a
  // slower other to tell.
  bool told = false;
  for (const double seconds : {2e-3, 10e-3, 50e-3, 250e-3}) {
    options.*GetParam().slow = seconds;
    if ((told = tells(c, plan, options, expected))) break;
  }
  EXPECT_TRUE(told);
}

INSTANTIATE_TEST_SUITE_P(Features, Faults, ::testing::ValuesIn(kFaults),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Engine, RefusesAPlanThatIsNotProved) {
  const PlanCase c = case_named("plain");
  const Model model(c.config);
  const auto device = make_rig_device({});
  const ops::Ops ops = ops::make_ops(*device, c.choices.compute.type);
  ThreadPool pool(1);
  StoreOptions options;
  options.master = c.choices.master;
  options.gradient_bytes = c.choices.gradient_bytes();
  HostStore store(model, options, *device, pool);
  EnginePlans plans;
  plans.train = make_plan(model, c.choices);
  nth(*plans.train, OpCode::backward, 1).accumulate = false;
  EXPECT_THROW(Engine(*device, ops, model, store, pool, std::move(plans)), LogicError);
}

}  // namespace
}  // namespace megatrain::testing
