/// @file
/// Tensor parallelism, proved by the conformance kit: each piece and whole models train what one
/// rank does.

#include <gtest/gtest.h>

#include <map>

#include "core/plan/checker.h"
#include "core/plan/costs.h"
#include "core/plan/planner.h"
#include "core/plan/writers.h"
#include "parallel/conformance/recording_communicator.h"
#include "parallel/conformance/training.h"
#include "parallel/tensor/model_ranks.h"
#include "parallel/tensor/tensor_parts.h"
#include "tests/model/test_configs.h"

namespace megatrain::conformance {
namespace {

/// Sums of the same products in another order, as between ranks that share a step.
constexpr Distance kBound = Distance::all(2e-5);
/// From fp32; one rank is as far away.
constexpr Distance kBf16Bound{.loss = 3e-3, .norm = 5e-2, .gradient = 0.3, .parameter = 0.3};

ModelConfig llama() {
  ModelConfig config = modeltest::small_llama();
  config.heads = 8;
  config.kv_heads = 4;
  config.intermediate = 40;
  config.layers = 3;
  config.initializer_range = 0.1;
  return config;
}

ModelConfig gpt2() {
  ModelConfig config = modeltest::small_gpt2();
  config.heads = config.kv_heads = 4;
  config.intermediate = 48;
  config.layers = 3;
  config.initializer_range = 0.1;
  return config;
}

ModelConfig changed(ModelConfig config, const std::function<void(ModelConfig&)>& change) {
  change(config);
  return config;
}

std::vector<modeltest::NamedConfig> models() {
  return {
      {"Llama", llama()},
      {"LlamaTied", changed(llama(), [](ModelConfig& c) { c.tied_embeddings = true; })},
      {"LlamaAllBiases", changed(llama(),
                                 [](ModelConfig& c) {
                                   c.qkv_bias = c.output_bias = c.mlp_bias = true;
                                   c.windows = {0, 4, 0};
                                 })},
      {"Qwen2", changed(llama(), [](ModelConfig& c) { c.qkv_bias = true; })},
      {"Qwen2Tied",
       changed(llama(), [](ModelConfig& c) { c.qkv_bias = c.tied_embeddings = true; })},
      {"Qwen3", changed(llama(), [](ModelConfig& c) { c.qk_norm = true; })},
      {"Qwen3Tied", changed(llama(), [](ModelConfig& c) { c.qk_norm = c.tied_embeddings = true; })},
      {"Gpt2", gpt2()},
      {"Gpt2Untied", changed(gpt2(), [](ModelConfig& c) { c.tied_embeddings = false; })},
      {"FusedLlama", changed(llama(), [](ModelConfig& c) { c.fused_qkv = c.qkv_bias = true; })},
  };
}

Training training(const ModelConfig& config) {
  Training training{.config = config, .choices = {}};
  training.choices.micro_batch = {1, 13};
  training.choices.micro_batches = 4;
  training.choices.compute.head_chunk = 7;
  training.choices.device_boundaries = config.layers;
  training.choices.staging_elements = round_up(Model(config).max_block_elements(), ops::kNormChunk);
  return training;
}

Setting setting(int tensor, int data = 1) {
  PerAxis<int> sizes(1);
  sizes[Axis::tensor] = tensor;
  sizes[Axis::data] = data;
  return {.axes = ProcessAxes(sizes)};
}

MakeRank alone() {
  return [](Rank&) { return TrainingRank{}; };
}

/// Tensor parallelism, shard groups and replicas, as the kit asks for them.
MakeRank ranks(int shard_group = 1) {
  return [shard_group](Rank& rank) {
    const ModelRanks own(rank.axes(), rank.rank(), shard_group);
    return TrainingRank{
        .partition = own.partition(),
        .slicing = own.data().slicing(),
        .replicas = own.data().replicas(),
        .share = own.data().share(),
        .groups = own.connect([&](const std::string& name, std::span<const int> members) {
          return rank.connect(name, members);
        })};
  };
}

class TensorModels : public ::testing::TestWithParam<modeltest::NamedConfig> {};

TEST_P(TensorModels, TrainWhatOneRankTrains) {
  for (const int size : {2, 4})
    check_training(setting(size), training(GetParam().config), ranks(), kBound);
}

TEST_P(TensorModels, TrainInShardGroupsWhatOneRankTrains) {
  check_training(setting(2, 2), training(GetParam().config), ranks(2), kBound);
}

TEST_P(TensorModels, TrainInBf16WhatOneRankTrains) {
  Training run = training(GetParam().config);
  run.choices.compute.type = DType::bf16;
  run.choices.master = MasterFormat::split;
  const TrainingResult exact = train({}, training(GetParam().config), alone());
  check_close(train({}, run, alone()), exact, kBf16Bound);
  for (const int size : {2, 4}) check_close(train(setting(size), run, ranks()), exact, kBf16Bound);
}

TEST_P(TensorModels, OneRankIsWhatItWasWithoutAxes) {
  check_training(setting(1), training(GetParam().config), ranks(), Distance::all(0));
}

INSTANTIATE_TEST_SUITE_P(Every, TensorModels, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param.name; });

TEST(Tensor, ReplicasAndShardGroupsOfPartsTrainWhatOneRankTrains) {
  const Training run = training(changed(llama(), [](ModelConfig& c) { c.qk_norm = true; }));
  check_training(setting(2, 2), run, ranks(1), kBound);
  check_training(setting(2, 4), run, ranks(2), kBound);
}

/// What saves memory or time changes no bit, whatever the parts.
TEST(Tensor, SameKeySameBits) {
  const Training plain =
      training(changed(llama(), [](ModelConfig& c) { c.qk_norm = c.qkv_bias = true; }));
  const std::map<std::string, std::function<void(Choices&)>> changes = {
      {"segments", [](Choices& c) { c.segment = 2, c.slots = 3, c.device_boundaries = 1; }},
      {"one segment", [](Choices& c) { c.segment = 3, c.slots = 3, c.device_boundaries = 0; }},
      {"waves", [](Choices& c) { c.waves = 2; }},
      {"spill", [](Choices& c) { c.device_boundaries = 0, c.slots = 1; }},
      {"resident", [](Choices& c) { c.resident = 2; }},
      {"device_states",
       [](Choices& c) {
         c.resident = 2;
         c.device_states = 3;
       }},
      {"keep", [](Choices& c) { c.keep = {Keep::attention, Keep::all, Keep::boundary}; }}};
  for (const int data : {1, 2}) {
    const TrainingResult expected = train(setting(2, data), plain, ranks(data));
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name);
      if (data > 1 && name == "waves") continue;  // part of the key: shares of ranks meet
      Training run = plain;
      change(run.choices);
      const Model part(run.config, {2, 0});
      ASSERT_EQ(numerics_key(run.choices, part, "test"), numerics_key(plain.choices, part, "test"));
      TrainingResult result = train(setting(2, data), run, ranks(data));
      // Gradients of what is updated on the device never come down.
      if (run.choices.device_states > 0) result.gradients = expected.gradients;
      EXPECT_TRUE(result == expected);
    }
  }
}

/// Losses and logits without a gradient, on every rank.
std::vector<float> forward_only(Rank& rank, const ModelConfig& config, const Choices& choices) {
  const ModelRanks own(rank.axes(), rank.rank(), 1);
  const Model model(config, own.partition());
  const ops::Ops ops = ops::make_ops(rank.device(), choices.compute.type);
  ThreadPool pool(1);
  HostStore store(model, {.master = choices.master, .gradient_bytes = choices.gradient_bytes()},
                  rank.device(), pool);
  initialize(store, 1, pool);
  Choices evaluate = choices;
  evaluate.purpose = Purpose::evaluate;
  evaluate.device_states = 0;
  Choices generate = choices;
  generate.purpose = Purpose::generate;
  generate.micro_batch.batch = 3;
  generate.micro_batches = 1;
  EnginePlans plans;
  plans.evaluate = make_plan(model, evaluate);
  plans.generate = make_plan(model, generate);
  Engine engine(rank.device(), ops, model, store, pool, std::move(plans),
                own.connect([&](const std::string& name, std::span<const int> members) {
                  return rank.connect(name, members);
                }));
  const auto batch = [&](const Choices& of) {
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(of.step_sequences() * (of.micro_batch.sequence + 1)));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(i * 31 % static_cast<std::size_t>(config.vocabulary));
    return make_batch(of, config, tokens);
  };
  const Batch evaluated = batch(evaluate);
  const std::span<const float> losses = engine.evaluate(evaluated.inputs);
  std::vector<float> result(losses.begin(), losses.end());
  Batch generated = batch(generate);
  generated.inputs.position = 5;
  const std::span<const float> logits = engine.logits(generated.inputs);
  EXPECT_EQ(logits.size(), static_cast<std::size_t>(3 * config.vocabulary));
  result.insert(result.end(), logits.begin(), logits.end());
  return result;
}

TEST(Tensor, EvaluatesAndGivesLogitsAsOneRankDoes) {
  for (const modeltest::NamedConfig& named : models()) {
    SCOPED_TRACE(named.name);
    for (const int size : {2, 4})
      check_equal_to_one(
          along(Axis::tensor, size),
          [&](Rank& rank) {
            return forward_only(rank, named.config, training(named.config).choices);
          },
          2e-5);
  }
}

TEST(Tensor, TheKeySaysHowManyParts) {
  const Training run = training(llama());
  EXPECT_NE(numerics_key(run.choices, Model(llama()), "test"),
            numerics_key(run.choices, Model(llama(), {2, 0}), "test"));
  EXPECT_EQ(numerics_key(run.choices, Model(llama(), {2, 1}), "test"),
            numerics_key(run.choices, Model(llama(), {2, 0}), "test"));
}

/// Sums and gathers of one step, by their sizes.
std::map<Index, int> collectives(const Training& run) {
  std::map<Index, int> result;
  const auto calls = run_ranks(setting(2), [&](Rank& rank) {
    const Training& one = run;
    const ModelRanks own(rank.axes(), rank.rank(), 1);
    const Model model(one.config, own.partition());
    const ops::Ops ops = ops::make_ops(rank.device(), DType::f32);
    ThreadPool pool(1);
    HostStore store(model, {.master = MasterFormat::fp32, .gradient_bytes = 4}, rank.device(),
                    pool);
    initialize(store, 1, pool);
    EnginePlans plans;
    plans.train = make_plan(model, one.choices);
    StepGroups groups = StepGroups::alone();
    const auto line = rank.axes().line(rank.rank(), Axis::tensor);
    std::vector<Call> made;
    groups.parts = make_tensor_parts(record_calls(rank.connect("parts", line), made));
    Engine engine(rank.device(), ops, model, store, pool, std::move(plans), std::move(groups));
    const std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(one.choices.step_sequences() *
                                 (one.choices.micro_batch.sequence + 1)),
        3);
    const Batch batch = make_batch(one.choices, one.config, tokens);
    engine.train_step(batch.inputs, one.rule);
    if (rank.rank() == 0)
      for (const Call& call : made)
        if (call.collective != Collective::sum) ++result[call.count];
  });
  return result;
}

/// A micro-batch sums twice a block forward, twice backward, and once more where the attention is
/// recomputed; the down projection's sum is made once.
TEST(Tensor, NothingIsSummedThatBackwardDoesNotNeed) {
  Training run = training(changed(llama(), [](ModelConfig& c) { c.qk_norm = true; }));
  run.choices.micro_batches = 1;
  const Index activation = 13 * run.config.hidden;
  const Index head_dim = run.config.head_dim;
  // Chunks of 7 and 6 tokens: three statistics gathered, and d(x) summed.
  const auto with_head = [&](int of_blocks) {
    return std::map<Index, int>{{activation, 1 + of_blocks},
                                {7 * run.config.hidden, 1},
                                {6 * run.config.hidden, 1},
                                {3 * 7, 1},
                                {3 * 6, 1},
                                {head_dim, 2 * 3}};
  };
  EXPECT_EQ(collectives(run), with_head(3 * 5));
  run.choices.keep = {Keep::attention, Keep::all, Keep::boundary};
  EXPECT_EQ(collectives(run), with_head(2 * 4 + 5));
  // Inside a segment the input of the next block is made again.
  run.choices.keep.clear();
  run.choices.segment = run.choices.slots = 3;
  run.choices.device_boundaries = 1;
  EXPECT_EQ(collectives(run), with_head(3 * 5 + 2));
}

TEST(Tensor, PlansOfPartsAreProved) {
  Training run = training(changed(llama(), [](ModelConfig& c) { c.qk_norm = true; }));
  for (const Index waves : {1, 2}) {
    run.choices.waves = waves;
    run.choices.slicing = {2, 1};
    run.choices.replicas = 2;
    const Model model(run.config, {2, 1});
    Plan plan = make_plan(model, run.choices);
    const CheckReport report = check(plan);
    EXPECT_TRUE(report.ok()) << report.text();
    // A sum over parts that is left out is found.
    for (Instruction& i : plan.body.instructions)
      if (i.op == OpCode::sum_parts) i.op = OpCode::collect;
    EXPECT_FALSE(check(plan).ok());
  }
}

TEST(Tensor, APartTakesItsShareOfTheMemory) {
  ModelConfig config = preset("llama-3-8b");
  config.layers = 4;
  PlanRequest request;
  request.sequence = 2048;
  request.sequences = 8;
  request.compute.type = DType::bf16;
  request.master = MasterFormat::split;
  request.device_memory = Index{40} << 30;
  const auto bytes = [&](const Partition& partition) {
    const Model model(config, partition);
    return plan_bytes(model, choose(model, request));
  };
  const PlanBytes whole = bytes({});
  const PlanBytes quarter = bytes({4, 3});
  EXPECT_NEAR(static_cast<double>(quarter.store) / static_cast<double>(whole.store), 0.25, 0.001);
}

TEST(Tensor, APartCostsItsShareAndWhatItReceives) {
  const Training run = training(llama());
  const Costs whole(Model(run.config), run.choices);
  const Costs half(Model(run.config, {2, 1}), run.choices);
  EXPECT_EQ(half.forward(0).flops * 2, whole.forward(0).flops);
  EXPECT_EQ(half.backward(0).attention_flops * 2, whole.backward(0).attention_flops);
  EXPECT_EQ(whole.forward(0).peer_bytes + whole.backward(0).peer_bytes + whole.head().peer_bytes,
            0);
  // Of a sum over two, half comes from the other part to be added up, and half added up.
  const Index sum = 13 * run.config.hidden * 4;
  EXPECT_EQ(half.embed().peer_bytes, sum);
  EXPECT_EQ(half.forward(0).peer_bytes, 2 * sum);
  EXPECT_EQ(half.recompute(0, false).peer_bytes, sum);
  EXPECT_EQ(half.recompute(0, true).peer_bytes, 2 * sum);
  EXPECT_EQ(half.backward(0).peer_bytes, 2 * sum);
  EXPECT_EQ(half.evaluate().peer_bytes, Index{13} * 3 * 4);
  EXPECT_EQ(half.head().peer_bytes, Index{13} * 3 * 4 + sum);
}

TEST(Tensor, WhatAHostCannotGatherIsRefused) {
  Training run = training(llama());
  run.choices.embedding = EmbeddingMode::rows;
  EXPECT_THROW(make_plan(Model(run.config, {2, 0}), run.choices), UserError);
}

TEST(Tensor, APartOfAnotherGroupIsRefused) {
  EXPECT_THROW(train(setting(2), training(llama()),
                     [](Rank& rank) { return TrainingRank{.partition = {2, rank.rank()}}; }),
               ConformanceError);
}

TEST(Tensor, OneThatFailsEndsTheStepOfAll) {
  try {
    train(setting(2), training(llama()), [](Rank& rank) {
      TrainingRank own = ranks()(rank);
      if (rank.rank() == 1) own.groups.parts->abort("out of order");
      return own;
    });
    FAIL() << "a part that is gone";
  } catch (const ConformanceError& error) {
    EXPECT_NE(std::string(error.what()).find("out of order"), std::string::npos) << error.what();
  }
}

TEST(Tensor, AxesThatNobodySharesAModelAlongAreRefused) {
  PerAxis<int> sizes(1);
  sizes[Axis::pipeline] = 2;
  EXPECT_THROW(ModelRanks(ProcessAxes(sizes), 0, 1), UserError);
}

}  // namespace
}  // namespace megatrain::conformance
