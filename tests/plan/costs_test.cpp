// Costs against formulas written out by hand: the templates tell one, the model's shape the other.

#include "core/plan/costs.h"

#include <gtest/gtest.h>

#include "core/ops/recording.h"
#include "tests/model/test_configs.h"

namespace megatrain::testing {
namespace {

constexpr MicroBatchShape kShape{.batch = 3, .sequence = 13};

Choices choices_with(Keep keep, Index layers) {
  Choices choices;
  choices.micro_batch = kShape;
  choices.compute.head_chunk = 7;
  choices.keep.assign(static_cast<std::size_t>(layers), keep);
  return choices;
}

/// Multiply-adds x 2 of a token in the products of a block.
struct BlockProducts {
  explicit BlockProducts(const ModelConfig& c) {
    const auto product = [](Index in, Index out) { return 2.0 * double(in) * double(out); };
    qkv = product(c.hidden, (c.heads + 2 * c.kv_heads) * c.head_dim);
    attended = product(c.heads * c.head_dim, c.hidden);
    up = product(c.hidden, c.intermediate) * (c.mlp == MlpKind::swiglu ? 2 : 1);
    down = product(c.intermediate, c.hidden);
  }
  double qkv, attended, up, down;
};

/// Multiply-adds x 2 of one of attention's products over all pairs of a causal mask.
double attention_product(const ModelConfig& c) {
  const double pairs = double(kShape.sequence) * double(kShape.sequence + 1) / 2;
  return 2.0 * double(kShape.batch) * double(c.heads * c.head_dim) * pairs;
}

TEST(Costs, AreThoseOfTheFormulas) {
  for (const modeltest::NamedConfig& named : modeltest::small_configs()) {
    SCOPED_TRACE(named.name);
    const ModelConfig& c = named.config;
    const Model model(c);
    const Index last = c.layers - 1;  // its window is 0: pairs are easy to count
    const auto tokens = double(kShape.tokens());
    const BlockProducts products(c);
    const double attention = attention_product(c);
    const Costs costs(model, choices_with(Keep::boundary, c.layers));

    const double all = products.qkv + products.attended + products.up + products.down;
    EXPECT_DOUBLE_EQ(costs.forward(last).flops, tokens * all);
    EXPECT_DOUBLE_EQ(costs.forward(last).attention_flops, 2 * attention);
    EXPECT_DOUBLE_EQ(costs.recompute(last, false).flops, tokens * (all - products.down));
    EXPECT_DOUBLE_EQ(costs.recompute(last, false).attention_flops, 2 * attention);
    EXPECT_DOUBLE_EQ(costs.recompute(last, true).flops, tokens * all);
    EXPECT_DOUBLE_EQ(costs.backward(last).flops, 2 * tokens * all);
    EXPECT_DOUBLE_EQ(costs.backward(last).attention_flops, 5 * attention);
    const double vocabulary = 2.0 * double(c.hidden) * double(c.vocabulary);
    EXPECT_DOUBLE_EQ(costs.head().flops, 3 * tokens * vocabulary);
    EXPECT_DOUBLE_EQ(costs.evaluate().flops, tokens * vocabulary);
    EXPECT_DOUBLE_EQ(costs.logits().flops, double(kShape.batch) * vocabulary);

    const Costs keeps_attention(model, choices_with(Keep::attention, c.layers));
    EXPECT_DOUBLE_EQ(keeps_attention.recompute(last, false).flops, tokens * products.up);
    EXPECT_EQ(keeps_attention.recompute(last, false).attention_flops, 0);
    const Costs keeps_all(model, choices_with(Keep::all, c.layers));
    EXPECT_EQ(keeps_all.recompute(last, false).flops, 0);
    EXPECT_GT(keeps_all.recompute(last, false).device_bytes, 0) << "norms and the activation";
  }
}

TEST(Costs, CountWhatElementWiseKernelsMove) {
  const ModelConfig c = modeltest::small_llama();
  const Costs costs(Model(c), choices_with(Keep::boundary, c.layers));
  // Two norms, rope in place on q and k, and the activation of two inputs.
  const Index a_token =
      Index{2} * 2 * c.hidden + Index{2} * (c.heads + c.kv_heads) * c.head_dim + 3 * c.intermediate;
  EXPECT_EQ(costs.forward(0).device_bytes, kShape.tokens() * a_token * 4);
  // Seven products, two norms, rope, attention, the activation.
  EXPECT_EQ(costs.forward(0).launches, 12);
}

/// Whatever a visit launches one by one, as a graph it is a few launches, and the same work.
TEST(Costs, AGraphIsAFewLaunches) {
  const ModelConfig c = preset("qwen2.5-7b");
  Choices choices = choices_with(Keep::boundary, c.layers);
  const Costs plain(Model(c), choices);
  choices.graphs = true;
  const Costs graphs(Model(c), choices);
  EXPECT_EQ(graphs.forward(0).launches, graph_launches(plain.forward(0).launches));
  EXPECT_EQ(graphs.recompute(0, true).launches, graph_launches(plain.recompute(0, true).launches));
  EXPECT_EQ(graphs.backward(0).launches, graph_launches(plain.backward(0).launches));
  EXPECT_LT(graphs.forward(0).launches, 5);
  EXPECT_LT(graphs.backward(0).launches, plain.backward(0).launches / 3);
  EXPECT_EQ(graphs.backward(0).flops, plain.backward(0).flops);
  EXPECT_EQ(graphs.head().launches, plain.head().launches);
  EXPECT_LE(graph_launches(1), graph_launches(100));
}

TEST(Costs, AWindowLowersThatOfAttention) {
  ModelConfig config = modeltest::small_llama();
  config.windows = {4, 0};
  const Costs costs(Model(config), choices_with(Keep::boundary, config.layers));
  const double pairs = 13.0 * 14 / 2 - (1 + 2 + 3 + 10 * 4);
  EXPECT_DOUBLE_EQ(costs.forward(1).attention_flops - costs.forward(0).attention_flops,
                   2 * 2.0 * 3 * 24 * pairs);
  EXPECT_EQ(costs.forward(1).flops, costs.forward(0).flops);
}

TEST(Recording, ReplaysWhatItWroteDown) {
  const ops::Gemm product{.m = 2, .n = 3, .k = 5, .workspace = {}};
  const ops::GeluForward gelu{.count = 7};
  const auto enqueue = [&](const ops::Ops& ops, Stream& stream) {
    ops.run(stream, product);
    stream.copy(nullptr, nullptr, 11);
    ops.run(stream, gelu);
  };
  const std::vector<ops::AnyOp> calls = ops::record(enqueue);
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(ops::work_of(calls[0]).product_flops, 60);
  EXPECT_EQ(ops::work_of(calls[1]).bytes, 22);
  EXPECT_EQ(ops::name(calls[2]), "gelu");
  const std::vector<ops::AnyOp> again = ops::record([&](const ops::Ops& ops, Stream& stream) {
    for (const ops::AnyOp& call : calls) ops::replay(ops, stream, call);
  });
  ASSERT_EQ(again.size(), calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(ops::name(again[i]), ops::name(calls[i]));
    EXPECT_EQ(ops::shape_text(again[i]), ops::shape_text(calls[i]));
  }
  EXPECT_THROW((void)ops::record([](const ops::Ops&, Stream& s) { s.fill(nullptr, 0, 1); }),
               LogicError);
}

}  // namespace
}  // namespace megatrain::testing
