#include "core/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/plan/checker.h"
#include "core/plan/forced.h"
#include "core/plan/plan_memory.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

constexpr Index kGiB = Index{1} << 30;

PlanRequest request_for_7b() {
  PlanRequest request;
  request.sequence = 4096;
  request.sequences = 16;
  request.compute.type = DType::bf16;
  request.master = MasterFormat::split;
  request.device_memory = 40 * kGiB;
  request.device_reserve = kGiB;
  return request;
}

std::string refusal(const Model& model, const PlanRequest& request) {
  try {
    choose(model, request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Planner, ObeysEveryBudgetDownToTheSmallest) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = request_for_7b();
  request.sequence = 512;
  for (const Index mebibytes : {100000, 20000, 8000, 4000, 3000}) {
    request.device_memory = mebibytes << 20;
    request.device_reserve = 300 << 20;
    const Choices choices = choose(model, request);
    const Plan plan = make_plan(model, choices);
    EXPECT_LE(plan.device_bytes + request.device_reserve, request.device_memory) << mebibytes;
    EXPECT_EQ(choices.step_sequences(), request.sequences);
    EXPECT_EQ(check(plan).text(), "");
  }
}

TEST(Planner, ATooSmallBudgetNamesTheSmallestThatWorks) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = request_for_7b();
  request.device_memory = 64 << 20;
  request.device_reserve = 0;
  const std::string text = refusal(model, request);
  const std::string marker = "smallest that works is ";
  const auto found = text.find(marker);
  ASSERT_NE(found, std::string::npos) << text;
  const std::string size =
      text.substr(found + marker.size(), text.find('.', found) - found - marker.size());
  // It is in whole MiB.
  request.device_memory = parse_bytes(size);
  EXPECT_EQ(refusal(model, request), "");
  request.device_memory -= 1 << 20;
  EXPECT_NE(refusal(model, request), "");
  EXPECT_EQ(text.find("reserve"), std::string::npos) << "there is none: " << text;
  EXPECT_NE(text.find("--seq-len"), std::string::npos) << text;
  request.device_reserve = 1 << 20;
  EXPECT_NE(refusal(model, request).find("1.00 MiB in reserve"), std::string::npos);
  request.purpose = Purpose::generate;
  request.sequences = 1;
  request.device_memory = 4 << 20;
  EXPECT_NE(refusal(model, request).find("shorten --context"), std::string::npos)
      << refusal(model, request);
}

TEST(Planner, BoundariesStayOnTheDeviceWhereTheHostHasNoRoom) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = request_for_7b();
  request.device_memory = 100 * kGiB;
  const PlanBytes roomy = plan_bytes(model, choose(model, request));
  EXPECT_EQ(choose(model, request).device_boundaries, model.config().layers);
  // Just what the store and the staging take: no boundary can be spilled.
  request.host_memory = roomy.host();
  const Choices choices = choose(model, request);
  EXPECT_EQ(choices.micro_batches, choose(model, request_for_7b()).micro_batches);
  EXPECT_EQ(choices.waves, 1);
  EXPECT_LE(plan_bytes(model, choices).host(), request.host_memory);
  EXPECT_EQ(check(make_plan(model, choices)).text(), "");
}

TEST(Planner, ATooSmallHostNamesTheSmallestThatWorks) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = request_for_7b();
  request.host_memory = 1 << 30;
  Index smallest = 0;
  try {
    (void)choose(model, request);
    FAIL() << "a model of 7 GB of states fits 1 GiB";
  } catch (const HostMemoryRefusal& refusal) {
    smallest = refusal.smallest().host();
  }
  request.host_memory = smallest;
  EXPECT_EQ(refusal(model, request), "");
  request.host_memory = smallest - 1;
  EXPECT_NE(refusal(model, request), "");
}

TEST(Planner, PlanBytesAreThePlansOwn) {
  for (const PlanCase& c : plan_grid()) {
    const Model model(c.config);
    const Plan plan = make_plan(model, c.choices);
    const PlanBytes bytes = plan_bytes(model, c.choices);
    EXPECT_EQ(bytes.device, plan.device_bytes) << c.name;
    EXPECT_EQ(bytes.pinned, plan.pinned_bytes) << c.name;
    Index device = 0;
    Index pinned = 0;
    Index store = 0;
    for (const MemoryRow& row : memory_table(plan, model))
      (row.space == MemorySpace::device   ? device
       : row.space == MemorySpace::pinned ? pinned
                                          : store) += row.bytes;
    EXPECT_EQ(device, plan.device_bytes) << c.name;
    EXPECT_EQ(pinned, plan.pinned_bytes) << c.name;
    EXPECT_EQ(store, bytes.store) << c.name;
  }
}

TEST(Planner, MoreMemoryNeverPredictsASlowerStep) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  const Rates rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  double before = 1e9;
  for (const Index gibibytes : {24, 40, 80, 140}) {
    request.device_memory = gibibytes * kGiB;
    const Plan plan = make_plan(model, choose(model, request));
    const double seconds = simulate(plan, rates).step_seconds;
    EXPECT_LE(seconds, before * 1.001) << gibibytes;
    before = seconds;
  }
}

TEST(Planner, ForcedChoicesAreMetOrRefused) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = request_for_7b();
  request.forced = {{"micro-batch", "2"},
                    {"segment", "3"},
                    {"waves", "4"},
                    {"slots", "5"},
                    {"device-boundaries", "1"}};
  const Choices choices = choose(model, request);
  EXPECT_EQ(choices.micro_batch.batch, 2);
  EXPECT_EQ(choices.segment, 3);
  EXPECT_EQ(choices.waves, 4);
  EXPECT_EQ(choices.slots, 5);
  EXPECT_EQ(choices.device_boundaries, 1);
  request.forced = {{"micro-batch", "3"}};
  EXPECT_NE(refusal(model, request).find("cannot be cut"), std::string::npos);
  request.forced = {{"colour", "blue"}};
  EXPECT_NE(refusal(model, request).find("it knows micro-batch"), std::string::npos);
  request.forced = {{"segment", "3"}, {"slots", "2"}, {"resident", "0"}};
  EXPECT_NE(refusal(model, request).find("slots"), std::string::npos);
  request.forced = {{"head-chunk", "0"}};
  EXPECT_NE(refusal(model, request).find("head-chunk"), std::string::npos);
  request.forced = {{"slots", "-1"}};
  EXPECT_NE(refusal(model, request).find("slots"), std::string::npos);
  request.forced = {{"waves", "99"}};
  EXPECT_NE(refusal(model, request).find("waves"), std::string::npos);
  request.forced = {{"slots", "many"}};
  EXPECT_NE(refusal(model, request).find("whole number"), std::string::npos);
}

TEST(Planner, MoreSequencesThanAPlanListsAreRefused) {
  const Model model(preset("llama-tiny"));
  PlanRequest request = request_for_7b();
  request.sequences = Index{1} << 30;
  EXPECT_NE(refusal(model, request).find("fewer tokens a step"), std::string::npos);
}

TEST(Planner, TooLittleHostMemoryIsRefused) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  request.host_memory = 64 * kGiB;
  EXPECT_NE(refusal(model, request).find("host memory"), std::string::npos);
}

TEST(Planner, GenerationHoldsWeightsOnly) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  request.sequences = 1;
  request.host_memory = 24 * kGiB;
  EXPECT_NE(refusal(model, request), "") << "no room to train";
  request.purpose = Purpose::generate;
  const Choices choices = choose(model, request);
  const Index weights = store_bytes(model, MasterFormat::split, 2, StoreContents::weights).total();
  EXPECT_EQ(plan_bytes(model, choices).store, weights);
  std::vector<std::string> slabs;
  for (const MemoryRow& row : memory_table(make_plan(model, choices), model))
    if (row.space == MemorySpace::store) slabs.push_back(row.name);
  EXPECT_EQ(slabs, std::vector<std::string>{"weights"});
  request.host_memory = 8 * kGiB;
  EXPECT_NE(refusal(model, request).find("of weights"), std::string::npos);
}

// Large models are planned and proved while a person waits.
TEST(Planner, PlansTheLargestPresets) {
  for (const auto& [name, gibibytes] :
       {std::pair("qwen2.5-32b", 40), std::pair("qwen2.5-72b", 24)}) {
    const Model model(preset(name));
    PlanRequest request = request_for_7b();
    for (const Purpose purpose : {Purpose::train, Purpose::evaluate, Purpose::generate}) {
      request.purpose = purpose;
      request.sequences = purpose == Purpose::generate ? 1 : 16;
      request.device_memory = gibibytes * kGiB;
      const Plan plan = make_plan(model, choose(model, request));
      EXPECT_LE(plan.device_bytes + request.device_reserve, request.device_memory) << name;
      EXPECT_EQ(check(plan).text(), "") << name;
    }
  }
}

/// What is chosen by rates is never slower than the fixed order, obeys the same budget, and has the
/// same bits.
TEST(Planner, RatesOnlyMakeItFaster) {
  const Model model(preset("qwen2.5-7b"));
  const Rates usual = assumed_rates(DeviceKind::cuda, DType::bf16);
  Rates slow_link = usual;
  slow_link.to_device /= 20;
  Rates slow_device = usual;
  slow_device.flops = usual.flops / 20;
  double gained = 0;
  for (const Rates& rates : {usual, slow_link, slow_device})
    for (const Index gibibytes : {20, 40, 80, 130}) {
      PlanRequest request = request_for_7b();
      request.device_memory = gibibytes * kGiB;
      const Plan fixed = make_plan(model, choose(model, request));
      request.rates = rates;
      const Plan plan = make_plan(model, choose(model, request));
      EXPECT_LE(plan.device_bytes + request.device_reserve, request.device_memory);
      EXPECT_EQ(check(plan).text(), "");
      EXPECT_EQ(numerics_key(plan.choices, model, "x"), numerics_key(fixed.choices, model, "x"));
      const double before = simulate(fixed, rates).step_seconds;
      const double after = simulate(plan, rates).step_seconds;
      EXPECT_LE(after, before) << gibibytes;
      gained = std::max(gained, 1 - after / before);
    }
  EXPECT_GT(gained, 0.01);
}

/// A link that hides costs nothing; one that does not is what memory goes for. Resident weights
/// save their second fetch only, which hides under the gradients' way down unless that is faster.
TEST(Planner, MemoryGoesWhereTheTimeGoes) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.forced = {{"device-states", "0"}, {"kept-on-host", "0"}};
  const Choices computing = choose(model, request);
  EXPECT_LT(computing.device_boundaries, model.config().layers);
  EXPECT_GT(std::ranges::count(computing.keep, Keep::attention), 10);
  EXPECT_EQ(computing.resident, 0);
  request.rates->to_device /= 50;
  const Choices copying = choose(model, request);
  EXPECT_GT(copying.resident, 5);
  // What is forced stays, whatever the rates say.
  request.forced = {{"device-boundaries", "28"}, {"resident", "3"}};
  const Choices forced = choose(model, request);
  EXPECT_EQ(forced.device_boundaries, 28);
  EXPECT_EQ(forced.resident, 3);
}

/// A small model in short micro-batches, for which the issuing thread is what the device waits for.
PlanRequest launch_bound() {
  PlanRequest request = request_for_7b();
  request.sequence = 128;
  request.sequences = 4;
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.rates->update = 1e15;
  request.rates->to_device = request.rates->to_host = 1e15;
  request.device_graphs = true;
  return request;
}

TEST(Planner, GraphsAreForStepsThatLaunchesBound) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = launch_bound();
  const Choices bound = choose(model, request);
  EXPECT_TRUE(bound.graphs);
  const Plan plan = make_plan(model, bound);
  EXPECT_EQ(check(plan).text(), "");
  Choices without = bound;
  without.graphs = false;
  const Plan other = make_plan(model, without);
  EXPECT_LT(simulate(plan, *request.rates).step_seconds,
            0.9 * simulate(other, *request.rates).step_seconds);
  EXPECT_EQ(numerics_key(bound, model, "x"), numerics_key(without, model, "x"));
  EXPECT_EQ(plan_bytes(model, bound).device, plan_bytes(model, without).device);
  // Where launches are hidden, graphs are left out.
  request.rates->launch = 1e-9;
  EXPECT_FALSE(choose(model, request).graphs);
  request = request_for_7b();
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.device_graphs = true;
  EXPECT_FALSE(choose(Model(preset("qwen2.5-7b")), request).graphs);
  // Without rates nothing says that they pay.
  request = launch_bound();
  request.rates.reset();
  EXPECT_FALSE(choose(model, request).graphs);
}

TEST(Planner, GraphsAreForcedOrRefused) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = launch_bound();
  request.forced = {{"graphs", "off"}};
  EXPECT_FALSE(choose(model, request).graphs);
  request.rates->launch = 1e-9;
  request.forced = {{"graphs", "on"}};
  EXPECT_TRUE(choose(model, request).graphs);
  request.forced = {{"graphs", "perhaps"}};
  EXPECT_NE(refusal(model, request).find("must be one of on, off"), std::string::npos);
  // A device without them is never given them, and a request for them there is refused.
  request = launch_bound();
  request.device_graphs = false;
  EXPECT_FALSE(choose(model, request).graphs);
  request.forced = {{"graphs", "on"}};
  EXPECT_NE(refusal(model, request).find("graphs=on"), std::string::npos);
  // So it is with a model in parts, whose blocks call the other parts.
  const Model part(preset("qwen2.5-0.5b"), {2, 0});
  request = launch_bound();
  EXPECT_FALSE(choose(part, request).graphs);
  request.forced = {{"graphs", "on"}};
  EXPECT_NE(refusal(part, request).find("several parts"), std::string::npos)
      << refusal(part, request);
}

/// What the driver needs for them is part of the budget.
TEST(Planner, GraphsFitTheBudget) {
  const Model model(preset("qwen2.5-0.5b"));
  PlanRequest request = launch_bound();
  Index taken = 0;
  for (const Index mebibytes : {20000, 6000, 3000, 2500, 2200}) {
    request.device_memory = mebibytes << 20;
    request.device_reserve = 300 << 20;
    const Choices choices = choose(model, request);
    taken += choices.graphs ? 1 : 0;
    EXPECT_LE(
        plan_bytes(model, choices).device + graph_bytes(model, choices) + request.device_reserve,
        request.device_memory)
        << mebibytes;
  }
  EXPECT_GT(taken, 1);
  request.forced = {{"graphs", "on"}};
  const Choices roomy = choose(model, request);
  EXPECT_GT(graph_bytes(model, roomy), 0);
  request.forced = {{"graphs", "off"}};
  EXPECT_EQ(graph_bytes(model, choose(model, request)), 0);
}

/// States live on the device where the host cannot keep up and the memory is there.
TEST(Planner, StatesGoWhereTheUpdateIsFaster) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  request.sequences = 2;
  request.device_memory = 130 * kGiB;
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.rates->update = 3e9;
  const Choices slow_host = choose(model, request);
  EXPECT_GT(slow_host.device_states, model.unit_count() / 2);
  EXPECT_EQ(check(make_plan(model, slow_host)).text(), "");
  request.device_memory = 16 * kGiB;
  EXPECT_LT(choose(model, request).device_states, 3) << "what is not there is not spent";
  // A host that is never waited for is left its work.
  request.device_memory = 130 * kGiB;
  request.rates->update = 1e15;
  request.rates->to_device = request.rates->to_host = 1e15;
  EXPECT_EQ(choose(model, request).device_states, 0);
  request.forced = {{"device-states", "3"}};
  const Choices forced = choose(model, request);
  EXPECT_EQ(forced.device_states, 3);
  EXPECT_GE(forced.resident, 2);
}

/// A step that is too long to keep what backward needs is cut into waves that are not, where that
/// decides no bits.
TEST(Planner, WavesAreAsLongAsTheyPay) {
  PlanRequest request = request_for_7b();
  request.sequence = 1024;
  request.sequences = 512;
  request.device_memory = 139 * kGiB;
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  const Model model(preset("qwen2.5-7b"));
  const Choices cut = choose(model, request);
  EXPECT_GT(cut.waves, 2);
  EXPECT_GE(std::ranges::count(cut.keep, Keep::all), model.config().layers - 2);
  EXPECT_EQ(check(make_plan(model, cut)).text(), "");
  // The host has no room for the gradients that waves carry.
  request.host_memory = 105 * kGiB;
  EXPECT_EQ(choose(model, request).waves, 1);
  request.host_memory = 0;
  request.rates->to_device = request.rates->to_host = 1e9;
  EXPECT_EQ(choose(model, request).waves, 1);
  const Model tied(preset("qwen2.5-0.5b"));
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.device_memory = 24 * kGiB;
  EXPECT_EQ(choose(tied, request).waves, 1);
}

/// What a block keeps goes to the host where that has room and the link has time.
TEST(Planner, KeepsOnTheHostWhatTheDeviceCannot) {
  const Model model(preset("qwen2.5-7b"));
  PlanRequest request = request_for_7b();
  request.device_memory = 100 * kGiB;
  request.rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  request.rates->update = 1e10;
  request.forced = {{"waves", "1"}};
  const Choices roomy = choose(model, request);
  EXPECT_GT(std::ranges::count(roomy.kept_on_host, true), 0);
  // What is spilled beside the host's updates is slow: first blocks are not.
  EXPECT_FALSE(roomy.kept_on_host.at(0) || roomy.kept_on_host.at(1));
  EXPECT_EQ(check(make_plan(model, roomy)).text(), "");
  request.host_memory = 115 * kGiB;
  EXPECT_EQ(std::ranges::count(choose(model, request).kept_on_host, true), 0);
  request.host_memory = 0;
  request.rates->to_host = 5e9;
  EXPECT_EQ(std::ranges::count(choose(model, request).kept_on_host, true), 0);
  request.forced = {{"kept-on-host", "7"}};
  EXPECT_EQ(std::ranges::count(choose(model, request).kept_on_host, true), 7);
  request.forced = {{"kept-on-host", "3@24"}};
  const std::vector<bool> last = choose(model, request).kept_on_host;
  EXPECT_EQ(std::ranges::count(last, true), 3);
  EXPECT_EQ(std::count(last.begin() + 24, last.end(), true), 3);
  for (const auto* beyond : {"29", "5@24", "1@28", "-1", "1@-1", "1@", "@1"}) {
    request.forced = {{"kept-on-host", beyond}};
    EXPECT_THROW((void)choose(model, request), UserError) << beyond;
  }
}

/// A GPU's memory also holds where the host's pinned pages lie.
TEST(Planner, LeavesRoomForTheTablesOfPinnedPages) {
  const Model model(preset("qwen2.5-14b"));
  PlanRequest request = request_for_7b();
  const auto bytes = [&] { return plan_bytes(model, choose(model, request)); };
  const Index budget = request.device_memory - request.device_reserve;
  const PlanBytes without = bytes();
  EXPECT_GT(without.device + page_table_bytes(without.host()), budget);
  request.page_tables = true;
  const PlanBytes with = bytes();
  EXPECT_LE(with.device + page_table_bytes(with.host()), budget);
  EXPECT_GT(page_table_bytes(with.host()), Index{300} << 20);
}

TEST(Choices, RefuseMoreBuffersThanAPlanCanUse) {
  const Model model(grid_config(false));
  const auto refusal = [&](auto&& change) -> std::string {
    Choices choices = case_named("rows").choices;
    change(choices);
    try {
      validate(choices, model);
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  };
  constexpr Index kHuge = Index{1} << 40;
  const auto says = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal([](Choices& c) { c.slots = kHuge; }), "at most 6");
  says(refusal([](Choices& c) { c.staging = kHuge; }), "at most 7");
  says(refusal([](Choices& c) { c.spill_buffers = kHuge; }), "spill-buffers");
}

TEST(Choices, RefuseStatesOnTheDeviceThatCannotBe) {
  const Model model(grid_config(false));
  const auto refuses = [&](auto&& change) {
    Choices choices = case_named("device_states_some_tied").choices;
    change(choices);
    EXPECT_THROW(validate(choices, model), UserError);
  };
  refuses([](Choices& c) { c.waves = 2; });
  refuses([](Choices& c) { c.resident = 1; });
  refuses([](Choices& c) { c.embedding = EmbeddingMode::rows; });
  refuses([](Choices& c) { c.device_states = 8; });
  refuses([](Choices& c) { c.device_states = -1; });
  refuses([](Choices& c) { c.purpose = Purpose::evaluate; });
}

TEST(Simulator, FindsWhatBounds) {
  const Model model(preset("qwen2.5-0.5b"));
  const Plan plan = make_plan(model, choose(model, request_for_7b()));
  Rates rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  EXPECT_EQ(simulate(plan, rates).bound(), StreamId::compute);
  rates.to_device = 1e8;
  EXPECT_EQ(simulate(plan, rates).bound(), StreamId::fetch);
  rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  rates.update = 1e6;
  const Simulation slow_host = simulate(plan, rates);
  EXPECT_EQ(slow_host.bound(), StreamId::update);
  const auto updating = [](const Simulation& simulation) {
    return simulation.busy[static_cast<std::size_t>(StreamId::update)];
  };
  EXPECT_GE(slow_host.step_seconds, updating(slow_host));
  // Moments in bf16 have a rate of their own.
  rates.update_bf16_moments = 4e6;
  PlanRequest request = request_for_7b();
  request.moments = DType::bf16;
  const Simulation faster = simulate(make_plan(model, choose(model, request)), rates);
  EXPECT_NEAR(updating(slow_host) / updating(faster), 4, 0.5);
}

TEST(RatesFile, RoundTripsAndRefusesNonsense) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "rates.txt";
  const Rates rates = assumed_rates(DeviceKind::cpu, DType::f32);
  std::ofstream(path) << "# measured\n" << format_rates(rates);
  const Rates read = read_rates(path);
  EXPECT_EQ(read.flops, rates.flops);
  EXPECT_EQ(read.update, rates.update);
  const Rates gpu = assumed_rates(DeviceKind::cuda, DType::bf16);
  std::ofstream(path) << format_rates(gpu);
  EXPECT_NEAR(read_rates(path).update_bf16_moments, 26.0 / 18 * gpu.update, 1e5);
  EXPECT_EQ(read.source, path.string());
  std::ofstream(path) << "flops = fast\n";
  EXPECT_THROW(read_rates(path), UserError);
  std::ofstream(path) << "flops = 1e12\n";
  EXPECT_THROW(read_rates(path), UserError);
  EXPECT_THROW(read_rates("/nowhere/rates"), UserError);
  for (const std::string value : {"inf", "nan", "-1", "0", "1e300", "1e-300"}) {
    std::ofstream(path) << "# measured\nlaunch = " << value << '\n';
    try {
      (void)read_rates(path);
      ADD_FAILURE() << value << " is taken as a rate";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("line 2: launch is "), std::string::npos)
          << error.what();
    }
  }
}

TEST(RatesFile, UpdatesOfBf16StatesAreAsFastAsOthersInFilesThatLackThem) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "rates.txt";
  const Rates rates = assumed_rates(DeviceKind::cuda, DType::bf16);
  std::string text = format_rates(rates);
  for (const std::string_view name : {"update_bf16_moments = ", "update_bf16_masters = "}) {
    const auto begin = text.find(name);
    ASSERT_NE(begin, std::string::npos) << name;
    text.erase(begin, text.find('\n', begin) + 1 - begin);
  }
  std::ofstream(path) << text;
  const Rates read = read_rates(path);
  for (const DType moments : {DType::f32, DType::bf16})
    for (const MasterFormat master : {MasterFormat::split, MasterFormat::bf16}) {
      EXPECT_EQ(read.update_of(master, moments), rates.update);
      EXPECT_EQ(rates.update_of(master, moments) > rates.update,
                master == MasterFormat::bf16 || moments == DType::bf16);
    }
}

TEST(RatesFile, AttentionIsAsFastAsProductsInFilesThatLackIt) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "rates.txt";
  Rates rates = assumed_rates(DeviceKind::cpu, DType::f32);
  rates.attention = 3e9;
  std::string text = format_rates(rates);
  std::ofstream(path) << text;
  EXPECT_EQ(read_rates(path).attention, 3e9);
  for (const std::string_view name : {"attention_backward", "attention"}) {
    const auto begin = text.find(std::string(name) + " = ");
    text.erase(begin, text.find('\n', begin) + 1 - begin);
  }
  std::ofstream(path) << text;
  EXPECT_EQ(read_rates(path).attention, rates.flops);
  EXPECT_EQ(read_rates(path).attention_backward, rates.flops);
}

}  // namespace
}  // namespace megatrain::testing
