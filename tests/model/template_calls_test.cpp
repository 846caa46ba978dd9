/// Which ops the templates call, on a table that only writes them down.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "core/model/templates.h"
#include "tests/model/test_configs.h"

namespace megatrain::modeltest {

namespace {

struct Calls : ops::OpState {
  std::vector<ops::Gemm> gemms;
  std::vector<ops::BiasGradient> bias_gradients;
  std::vector<ops::AttentionForward> attentions;
  int others = 0;
};

template <class Arguments>
void note(ops::OpState& state, Stream& /*stream*/, const Arguments& arguments) {
  auto& calls = static_cast<Calls&>(state);
  if constexpr (std::is_same_v<Arguments, ops::Gemm>) {
    calls.gemms.push_back(arguments);
  } else if constexpr (std::is_same_v<Arguments, ops::BiasGradient>) {
    calls.bias_gradients.push_back(arguments);
  } else if constexpr (std::is_same_v<Arguments, ops::AttentionForward>) {
    calls.attentions.push_back(arguments);
  } else {
    ++calls.others;
  }
}

template <class... Arguments>
ops::OpTable noting_table(std::tuple<ops::OpFunction<Arguments>...> /*signatures*/) {
  return {&note<Arguments>...};
}

class TemplateCalls : public testing::Test {
 protected:
  static constexpr MicroBatchShape kShape{.batch = 3, .sequence = 13};
  /// What `action` calls.
  template <class Action>
  Calls record(const Action& action) {
    auto state = std::make_unique<Calls>();
    Calls* calls = state.get();
    const ops::Ops ops(
        noting_table(ops::OpTable{}),
        [](ops::OpState&, const ops::AttentionShape&, ops::AttentionBackend) {
          return std::string();
        },
        std::move(state));
    action(ops, *stream_);
    stream_->synchronize();
    return std::move(*calls);
  }
  Calls forward(const Block& block, Keep keep) {
    return record([&](const ops::Ops& ops, Stream& s) { block.forward(ops, s, keep, buffers_); });
  }
  Calls recompute(const Block& block, Keep keep, bool output) {
    BlockBuffers buffers = buffers_;
    if (!output) buffers.output = nullptr;
    return record([&](const ops::Ops& ops, Stream& s) { block.recompute(ops, s, keep, buffers); });
  }
  Calls backward(const Block& block) {
    return record(
        [&](const ops::Ops& ops, Stream& s) { block.backward(ops, s, Keep::boundary, buffers_); });
  }
  static Model side_by_side() {
    for (const NamedConfig& named : small_configs())
      if (named.name == "side by side with biases") return Model(named.config);
    throw LogicError("no such configuration");
  }

  // Never dereferenced; not null where null means "none".
  std::byte anything_{};
  BlockBuffers buffers_{.output = &anything_};
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  std::unique_ptr<Stream> stream_ = device_->make_stream("compute");
};

}  // namespace

TEST_F(TemplateCalls, recompute_makes_each_product_once_and_never_the_down_projection) {
  const Model model(small_llama());
  const Block block(model, 1, {}, kShape);
  EXPECT_EQ(forward(block, Keep::boundary).gemms.size(), 7U);  // q k v o gate up down
  EXPECT_EQ(recompute(block, Keep::boundary, false).gemms.size(), 6U);
  EXPECT_EQ(recompute(block, Keep::boundary, false).attentions.size(), 1U);
  EXPECT_EQ(recompute(block, Keep::attention, false).gemms.size(), 2U);
  EXPECT_EQ(recompute(block, Keep::attention, false).attentions.size(), 0U);
  EXPECT_EQ(recompute(block, Keep::all, false).gemms.size(), 0U);
  for (const Keep keep : {Keep::boundary, Keep::attention, Keep::all}) {
    EXPECT_EQ(recompute(block, keep, true).gemms.size(),
              recompute(block, keep, false).gemms.size() + 1);
    const Index inner = model.config().intermediate;
    EXPECT_TRUE(std::ranges::none_of(recompute(block, keep, false).gemms,
                                     [&](const ops::Gemm& g) { return g.k == inner; }));
  }
}

TEST_F(TemplateCalls, tensors_side_by_side_are_one_product) {
  const Model model = side_by_side();
  const Block block(model, 1, {}, kShape);
  EXPECT_EQ(forward(block, Keep::boundary).gemms.size(), 4U);  // qkv o gate-up down
  const Calls calls = backward(block);
  EXPECT_EQ(calls.gemms.size(), 8U);
  EXPECT_EQ(calls.bias_gradients.size(), 3U);  // qkv gate-up down
}

TEST_F(TemplateCalls, layers_differ_in_window_and_scale) {
  ModelConfig config = small_gpt2();
  config.windows = {0, 5};
  config.scale_by_inverse_layer = true;
  const Model model(config);
  const ops::AttentionShape first =
      forward(Block(model, 1, {}, kShape), Keep::all).attentions.at(0).shape;
  const ops::AttentionShape second =
      forward(Block(model, 2, {}, kShape), Keep::all).attentions.at(0).shape;
  EXPECT_EQ(first.window, 0);
  EXPECT_EQ(second.window, 5);
  EXPECT_FLOAT_EQ(first.scale, static_cast<float>(1 / std::sqrt(7.0)));
  EXPECT_FLOAT_EQ(second.scale, first.scale / 2);
}

TEST_F(TemplateCalls, keeping_more_moves_bytes_from_recomputed_to_kept) {
  for (const NamedConfig& named : small_configs()) {
    const Model model(named.config);
    const Block block(model, 1, {}, kShape);
    EXPECT_EQ(block.kept_bytes(Keep::boundary), 0);
    EXPECT_LT(block.kept_bytes(Keep::attention), block.kept_bytes(Keep::all));
    for (const Keep keep : {Keep::attention, Keep::all})
      EXPECT_EQ(block.kept_bytes(keep) + block.recomputed_bytes(keep),
                block.recomputed_bytes(Keep::boundary));
  }
}

TEST_F(TemplateCalls, the_heads_logits_exist_for_a_chunk_only) {
  const Model model(small_llama());
  const Index whole = Head(model, {.head_chunk = 39}, kShape).temporary_bytes();
  const Index chunk = Head(model, {.head_chunk = 3}, kShape).temporary_bytes();
  EXPECT_GE(whole - chunk, 36 * 67 * 4 - 512);
}

}  // namespace megatrain::modeltest
