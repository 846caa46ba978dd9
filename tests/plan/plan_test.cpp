#include <gtest/gtest.h>

#include <set>

#include "core/plan/checker.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

class Grid : public ::testing::TestWithParam<PlanCase> {};

TEST_P(Grid, IsProvedByTheChecker) {
  const Model model(GetParam().config);
  const Plan plan = make_plan(model, GetParam().choices);
  EXPECT_FALSE(plan.body.instructions.empty());
  EXPECT_EQ(check(plan).text(), "");
}

TEST_P(Grid, EveryWaitIsNeeded) {
  const Model model(GetParam().config);
  const Plan plan = make_plan(model, GetParam().choices);
  ASSERT_FALSE(plan.body.waits.empty());
  for (std::size_t w = 0; w < plan.body.waits.size(); ++w) {
    Plan broken = plan;
    // A wait for itself's body start is none: the earliest instruction of its own stream.
    for (Instruction& i : broken.body.instructions) {
      if (w < i.waits_begin || w >= i.waits_end) continue;
      broken.body.waits.erase(broken.body.waits.begin() + static_cast<std::ptrdiff_t>(w));
      for (Instruction& j : broken.body.instructions) {
        if (j.waits_begin > w) --j.waits_begin;
        if (j.waits_end > w) --j.waits_end;
      }
      break;
    }
    ASSERT_EQ(broken.body.waits.size() + 1, plan.body.waits.size());
    EXPECT_FALSE(check(broken).ok()) << "wait " << w << " could be left out";
  }
}

TEST_P(Grid, AllocationsDoNotOverlapAndFillTheArenas) {
  const Model model(GetParam().config);
  const Plan plan = make_plan(model, GetParam().choices);
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::pinned}) {
    Index end = 0;
    for (const Buffer& buffer : plan.buffers) {
      if (buffer.space != space || buffer.view) continue;
      EXPECT_EQ(buffer.offset, end) << buffer.name;
      end = buffer.offset + buffer.bytes;
    }
    EXPECT_EQ(end, space == MemorySpace::device ? plan.device_bytes : plan.pinned_bytes);
  }
}

TEST_P(Grid, FetchesAreAsFewAsDesigned) {
  const PlanCase& c = GetParam();
  const Model model(c.config);
  const Plan plan = make_plan(model, c.choices);
  std::vector<int> fetches(static_cast<std::size_t>(model.unit_count()), 0);
  std::vector<int> recomputed(static_cast<std::size_t>(model.unit_count()), 0);
  for (const Instruction& i : plan.body.instructions) {
    if (i.op == OpCode::fetch) ++fetches[static_cast<std::size_t>(i.unit)];
    if (i.op == OpCode::recompute) ++recomputed[static_cast<std::size_t>(i.unit)];
  }
  const bool train = c.choices.purpose == Purpose::train;
  const auto waves = static_cast<int>(c.choices.waves);
  const Index last_segment = (c.config.layers - 1) / c.choices.segment * c.choices.segment;
  for (Index b = 0; b < c.config.layers; ++b) {
    const bool resident = b < c.choices.resident;
    const bool held = train && b >= last_segment;
    const int expected = c.choices.updates_on_device(b + 1) ? 0
                         : resident                         ? 1
                                                            : waves * (train && !held ? 2 : 1);
    EXPECT_EQ(fetches[static_cast<std::size_t>(b + 1)], expected) << "block " << b;
    EXPECT_EQ(recomputed[static_cast<std::size_t>(b + 1)],
              train ? static_cast<int>(c.choices.micro_batches) : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Grid, ::testing::ValuesIn(plan_grid()),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(SeveralRanks, Grid, ::testing::ValuesIn(several_ranks_cases()),
                         [](const auto& test) { return test.param.name; });

/// Every rank enqueues the same collectives in the same order, whatever its place.
TEST(SeveralRanks, HaveTheSameLists) {
  const PlanCase c = case_named("hybrid_waves_segments");
  const Model model(c.config);
  const auto list = [&](Index index) {
    Choices choices = c.choices;
    choices.slicing.index = index;
    std::string all;
    const Plan plan = make_plan(model, choices);
    for (const Instruction& i : plan.body.instructions) all += describe(i, plan.units) + "\n";
    return all;
  };
  EXPECT_EQ(list(0), list(1));
  EXPECT_NE(list(0).find("all-gather block 0\n"), std::string::npos);
  EXPECT_NE(list(0).find("reduce-scatter block 0 wave 1\nall-reduce block 0 wave 1\n"),
            std::string::npos);
}

/// Each holds its part of one copy, and padding: the slices of a unit make up its slab.
TEST(SeveralRanks, HoldOneCopyTogether) {
  const PlanCase c = case_named("plain");
  const Model model(c.config);
  const Index whole = store_bytes(model, c.choices.master, 4).total();
  for (const Index count : {2, 3, 7}) {
    const Slicing slicing{count, 0};
    const Index all =
        count * store_bytes(model, c.choices.master, 4, StoreContents::training, slicing).total();
    EXPECT_GE(all, whole);
    EXPECT_LE(all, whole + model.unit_count() * count * kSlabAlignment * 16);
  }
  for (const Unit& unit : model.units())
    for (const ParamDesc& param : unit.params) {
      Index next = 0;
      for (Index i = 0; i < 3; ++i) {
        const ElementRange held = Slicing{3, i}.held(unit, param);
        if (held.empty()) continue;
        EXPECT_EQ(held.first, next) << param.name;
        next = held.last;
      }
      EXPECT_EQ(next, param.elements()) << param.name;
    }
}

TEST(Choices, ContradictionsAreRefusedByName) {
  const Model model(grid_config(false));
  const Choices good = plan_grid().front().choices;
  const auto refusal = [&](auto&& change) {
    Choices choices = good;
    change(choices);
    try {
      make_plan(model, choices);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal([](Choices& c) {
              c.segment = 3;
              c.device_boundaries = 2;
            }).find("held together) is 2"),
            std::string::npos);
  EXPECT_NE(refusal([](Choices& c) { c.waves = 9; }).find("waves"), std::string::npos);
  EXPECT_NE(refusal([](Choices& c) { c.slots = 0; }).find("slots"), std::string::npos);
  EXPECT_NE(refusal([](Choices& c) { c.device_boundaries = 6; }).find("device-boundaries"),
            std::string::npos);
  EXPECT_NE(refusal([](Choices& c) { c.keep = {Keep::all}; }).find("keep names 1"),
            std::string::npos);
  EXPECT_NE(refusal([](Choices& c) {
              c.segment = 2;
              c.device_boundaries = 3;
              c.keep.assign(5, Keep::all);
            }).find("segment = 1"),
            std::string::npos);
  EXPECT_NE(refusal([](Choices& c) { c.master = MasterFormat::split; }).find("fp32"),
            std::string::npos);
}

}  // namespace
}  // namespace megatrain::testing
