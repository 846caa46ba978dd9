#include "tests/plan/plan_grid.h"

#include "tests/model/test_configs.h"

namespace megatrain::testing {

ModelConfig grid_config(bool tied) {
  ModelConfig config = modeltest::small_llama();
  config.layers = 5;
  config.tied_embeddings = tied;
  return config;
}

std::vector<PlanCase> plan_grid() {
  std::vector<PlanCase> grid;
  const auto add = [&](std::string name, bool tied, auto&& change) {
    PlanCase plan_case{std::move(name), grid_config(tied), {}};
    Choices& choices = plan_case.choices;
    choices.micro_batch = {2, 13};
    choices.micro_batches = 4;
    choices.compute.head_chunk = 7;
    choices.slots = 2;
    choices.segment = 1;
    choices.device_boundaries = 5;
    choices.staging_elements =
        round_up(Model(plan_case.config).max_block_elements(), ops::kNormChunk);
    change(choices);
    grid.push_back(std::move(plan_case));
  };
  add("plain", false, [](Choices&) {});
  add("tied", true, [](Choices&) {});
  add("one_micro_batch", false, [](Choices& c) { c.micro_batches = 1; });
  add("one_slot", false, [](Choices& c) { c.slots = 1; });
  add("three_slots", true, [](Choices& c) { c.slots = 3; });
  add("spill_all", false, [](Choices& c) { c.device_boundaries = 0; });
  add("spill_some", true, [](Choices& c) {
    c.device_boundaries = 2;
    c.spill_buffers = 1;
  });
  add("segments", false, [](Choices& c) {
    c.segment = 2;
    c.slots = 3;
    c.device_boundaries = 3;
  });
  add("segments_spill_tied", true, [](Choices& c) {
    c.segment = 3;
    c.slots = 3;
    c.device_boundaries = 1;
  });
  add("one_segment", false, [](Choices& c) {
    c.segment = 5;
    c.slots = 5;
    c.device_boundaries = 0;
  });
  add("waves", false, [](Choices& c) { c.waves = 2; });
  add("uneven_waves_tied", true, [](Choices& c) {
    c.waves = 3;
    c.device_boundaries = 1;
  });
  add("waves_segments", false, [](Choices& c) {
    c.waves = 2;
    c.segment = 2;
    c.slots = 2;
    c.device_boundaries = 0;
  });
  add("resident", true, [](Choices& c) { c.resident = 2; });
  add("all_resident_waves", false, [](Choices& c) {
    c.resident = 5;
    c.slots = 1;
    c.waves = 2;
  });
  add("device_states_embedding", false, [](Choices& c) { c.device_states = 1; });
  add("device_states_some_tied", true, [](Choices& c) {
    c.device_states = 3;
    c.resident = 3;
    c.device_boundaries = 2;
  });
  add("device_states_all", false, [](Choices& c) {
    c.device_states = 7;
    c.resident = 5;
  });
  add("device_states_segments", true, [](Choices& c) {
    c.device_states = 6;
    c.resident = 5;
    c.segment = 2;
    c.device_boundaries = 1;
  });
  add("device_states_split_masters", true, [](Choices& c) {
    c.compute.type = DType::bf16;
    c.master = MasterFormat::split;
    c.device_states = 7;
    c.resident = 5;
  });
  add("bf16_moments", false, [](Choices& c) { c.moments = DType::bf16; });
  add("bf16_moments_waves_segments_tied", true, [](Choices& c) {
    c.moments = DType::bf16;
    c.waves = 2;
    c.segment = 3;
    c.slots = 3;
    c.device_boundaries = 1;
  });
  add("bf16_moments_device_states_split_masters", true, [](Choices& c) {
    c.compute.type = DType::bf16;
    c.master = MasterFormat::split;
    c.moments = DType::bf16;
    c.device_states = 4;
    c.resident = 3;
  });
  add("bf16_masters", true, [](Choices& c) {
    c.compute.type = DType::bf16;
    c.master = MasterFormat::bf16;
    c.waves = 2;
  });
  add("bf16_states_device_states", false, [](Choices& c) {
    c.compute.type = DType::bf16;
    c.master = MasterFormat::bf16;
    c.moments = DType::bf16;
    c.device_states = 4;
    c.resident = 3;
  });
  add("rows", false, [](Choices& c) { c.embedding = EmbeddingMode::rows; });
  add("rows_tied_waves", true, [](Choices& c) {
    c.embedding = EmbeddingMode::rows;
    c.waves = 2;
  });
  add("keep", false, [](Choices& c) {
    c.keep = {Keep::boundary, Keep::attention, Keep::all, Keep::all, Keep::attention};
  });
  add("keep_on_host", false, [](Choices& c) {
    c.keep = {Keep::all, Keep::attention, Keep::boundary, Keep::all, Keep::all};
    c.kept_on_host = {true, true, true, false, true};
    c.device_boundaries = 2;
  });
  add("keep_all_on_host_waves", true, [](Choices& c) {
    c.keep.assign(5, Keep::all);
    c.kept_on_host.assign(5, true);
    c.spill_buffers = 1;
    c.waves = 2;
  });
  add("graphs", false, [](Choices& c) {
    c.graphs = true;
    c.device_boundaries = 2;
    c.keep = {Keep::boundary, Keep::attention, Keep::all, Keep::boundary, Keep::boundary};
  });
  add("graphs_waves_segments_tied", true, [](Choices& c) {
    c.graphs = true;
    c.waves = 2;
    c.segment = 2;
    c.device_boundaries = 1;
  });
  add("one_staging", false, [](Choices& c) {
    c.staging = 1;
    c.staging_elements = ops::kNormChunk;
  });
  add("split_masters", true, [](Choices& c) {
    c.compute.type = DType::bf16;
    c.master = MasterFormat::split;
    c.waves = 2;
  });
  add("evaluate", true, [](Choices& c) {
    c.purpose = Purpose::evaluate;
    c.waves = 2;
  });
  add("evaluate_graphs", false, [](Choices& c) {
    c.purpose = Purpose::evaluate;
    c.graphs = true;
  });
  add("evaluate_rows", false, [](Choices& c) {
    c.purpose = Purpose::evaluate;
    c.embedding = EmbeddingMode::rows;
  });
  add("generate", false, [](Choices& c) {
    c.purpose = Purpose::generate;
    c.micro_batches = 1;
  });
  return grid;
}

std::vector<PlanCase> training_cases() {
  std::vector<PlanCase> cases;
  for (PlanCase& c : plan_grid())
    if (c.choices.purpose == Purpose::train) cases.push_back(std::move(c));
  return cases;
}

std::vector<PlanCase> several_ranks_cases() {
  std::vector<PlanCase> cases;
  const auto add = [&](std::string name, std::string_view of, const Slicing& slicing,
                       Index replicas) {
    PlanCase c = case_named(of);
    c.name = std::move(name);
    c.choices.slicing = slicing;
    c.choices.replicas = replicas;
    cases.push_back(std::move(c));
  };
  add("shards", "plain", {2, 1}, 1);
  add("shards_one_staging", "one_staging", {3, 0}, 1);
  add("shards_tied_waves", "uneven_waves_tied", {2, 0}, 1);
  add("shards_segments", "segments", {4, 3}, 1);
  add("replicas", "keep", {}, 2);
  add("replicas_waves", "waves", {}, 3);
  add("hybrid_waves_segments", "waves_segments", {2, 1}, 2);
  add("hybrid_tied", "tied", {2, 0}, 2);
  add("shards_device_states", "device_states_some_tied", {2, 1}, 1);
  add("hybrid_device_states", "device_states_all", {2, 0}, 2);
  add("shards_bf16_moments", "bf16_moments", {2, 1}, 1);
  add("shards_graphs", "graphs", {2, 1}, 1);
  add("shards_evaluate", "evaluate", {2, 1}, 1);
  add("shards_generate", "generate", {2, 0}, 2);
  return cases;
}

PlanCase case_named(std::string_view name) {
  for (PlanCase& c : plan_grid())
    if (c.name == name) return c;
  for (PlanCase& c : several_ranks_cases())
    if (c.name == name) return c;
  throw LogicError("the grid has no such case");
}

}  // namespace megatrain::testing
