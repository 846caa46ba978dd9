#include <fmt/format.h>

#include "tests/model/reference_model.h"
#include "tests/model/template_rig.h"
#include "tests/model/test_configs.h"

namespace megatrain::modeltest {

using optest::relative_error;
using optest::Values;

namespace {

/// The sum of the reference over micro-batches.
struct Expected {
  Values logits;  ///< of the last
  Values losses;
  reference::Tensors gradients;
};
Expected expect(const ModelConfig& config, const reference::Tensors& weights,
                std::span<const reference::Batch> batches, double scale) {
  Expected expected;
  for (const reference::Batch& batch : batches) {
    reference::Result result = reference::run(config, weights, batch, scale);
    expected.logits = std::move(result.logits);
    expected.losses.insert(expected.losses.end(), result.losses.begin(), result.losses.end());
    for (const auto& [name, values] : result.gradients) {
      Values& sum = expected.gradients[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
  }
  return expected;
}

/// @param least_cosine  of a tensor's gradient in bf16 to that of the reference
void compare(const Outcome& outcome, const Expected& expected, DType type,
             double least_cosine = 0.999) {
  EXPECT_LT(relative_error(outcome.losses, expected.losses), type == DType::f32 ? 1e-5 : 2e-2);
  ASSERT_EQ(outcome.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    ASSERT_TRUE(outcome.gradients.contains(name)) << name;
    const Values& computed = outcome.gradients.at(name);
    ASSERT_EQ(computed.size(), gradient.size()) << name;
    if (type == DType::f32) {
      EXPECT_LT(relative_error(computed, gradient), 1e-5) << name;
    } else {
      EXPECT_GT(cosine(computed, gradient), least_cosine) << name;
    }
  }
}

}  // namespace

class TemplateTest : public optest::OpTest {
 protected:
  static constexpr MicroBatchShape kShape{.batch = 3, .sequence = 13};
  [[nodiscard]] ComputeConfig compute(Index head_chunk = 16) const {
    return {.type = type(), .head_chunk = head_chunk};
  }
  static std::vector<reference::Batch> batches(const ModelConfig& config, int count) {
    std::vector<reference::Batch> out;
    for (int i = 0; i < count; ++i)
      out.push_back(random_batch(config, kShape, 100 + 2 * static_cast<std::uint64_t>(i)));
    return out;
  }
  static double step_scale(std::span<const reference::Batch> batches) {
    Index tokens = 0;
    for (const reference::Batch& batch : batches) tokens += counted(batch);
    return 1 / static_cast<double>(tokens);
  }
};

TEST_P(TemplateTest, losses_and_every_gradient_match_the_reference) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 1);
    const double scale = step_scale(data);
    const Expected expected = expect(named.config, rig.weights(), data, scale);
    // Over few tokens the rounding of bf16 does not average out in a norm of six elements.
    compare(rig.train(data, scale), expected, type(), 0.995);
  }
}

TEST_P(TemplateTest, micro_batches_add_up) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 3);
    const double scale = step_scale(data);
    const Expected expected = expect(named.config, rig.weights(), data, scale);
    compare(rig.train(data, scale), expected, type());
  }
}

TEST_P(TemplateTest, what_is_kept_does_not_change_a_bit) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 2);
    const optest::Bytes plain = rig.train(data, 0.1).bits;
    for (const Keep keep : {Keep::boundary, Keep::attention, Keep::all})
      for (const bool recompute_output : {false, true})
        EXPECT_TRUE(optest::same_bits(
            plain, rig.train(data, 0.1, {.keep = keep, .recompute_output = recompute_output}).bits))
            << static_cast<int>(keep) << " " << recompute_output;
  }
}

TEST_P(TemplateTest, the_heads_gradient_may_go_over_its_input) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 1);
    EXPECT_TRUE(optest::same_bits(rig.train(data, 0.1).bits,
                                  rig.train(data, 0.1, {.head_in_place = true}).bits));
  }
}

TEST_P(TemplateTest, gathered_embedding_rows_give_the_same_bits) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 1);
    EXPECT_TRUE(optest::same_bits(rig.train(data, 0.1).bits,
                                  rig.train(data, 0.1, {.gathered_embedding = true}).bits));
  }
}

TEST_P(TemplateTest, any_head_chunk_gives_the_gradient) {
  for (const ModelConfig& config : {small_llama(), small_gpt2()}) {
    for (const Index chunk : {Index{1}, Index{7}, Index{39}, Index{1000}}) {
      SCOPED_TRACE(fmt::format("{}, chunks of {}", config.model_type, chunk));
      TemplateRig rig(bench(), config, compute(chunk), kShape);
      const auto data = batches(config, 2);
      const double scale = step_scale(data);
      const Expected expected = expect(config, rig.weights(), data, scale);
      compare(rig.train(data, scale), expected, type());
    }
  }
}

TEST_P(TemplateTest, evaluation_gives_the_losses_of_training) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 1);
    EXPECT_EQ(rig.losses(data[0]), rig.train(data, 0.1).losses);
  }
}

TEST_P(TemplateTest, logits_match_the_reference) {
  for (const NamedConfig& named : small_configs()) {
    SCOPED_TRACE(named.name);
    TemplateRig rig(bench(), named.config, compute(), kShape);
    const auto data = batches(named.config, 1);
    const Expected expected = expect(named.config, rig.weights(), data, 1);
    const Index first = 5;
    const Index count = 9;
    const auto begin = expected.logits.begin() + first * named.config.vocabulary;
    const Values some(begin, begin + count * named.config.vocabulary);
    const Values computed = rig.logits(data[0], first, count);
    EXPECT_LT(relative_error(computed, some), type() == DType::f32 ? 1e-5 : 3e-2);
  }
}

TEST_P(TemplateTest, a_sequence_beyond_the_learned_positions_is_refused) {
  const Model model(small_gpt2());
  EXPECT_THROW(Embedding(model, compute(), {.batch = 1, .sequence = 20}), UserError);
  EXPECT_NO_THROW(Embedding(model, compute(), {.batch = 1, .sequence = 19}));
}

INSTANTIATE_TEST_SUITE_P(Model, TemplateTest, testing::ValuesIn(optest::op_cases()),
                         optest::op_case_name);

}  // namespace megatrain::modeltest
