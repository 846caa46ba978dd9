/// @file
/// Models in parts: together they are the whole, element by element.

#include <gtest/gtest.h>

#include <numeric>

#include "core/model/model.h"
#include "tests/model/test_configs.h"

namespace megatrain::modeltest {
namespace {

std::vector<NamedConfig> divisible_configs() {
  std::vector<NamedConfig> configs;
  for (NamedConfig& named : small_configs()) {
    named.config.heads = 8;
    named.config.kv_heads = named.config.kv_heads == named.config.heads ? 8 : 4;
    named.config.intermediate = 40;
    configs.push_back(std::move(named));
  }
  return configs;
}

std::vector<float> values_of(const ParamDesc& param, Index first, Index count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  initial_values(param, 3, first, values);
  return values;
}

class Parts : public ::testing::TestWithParam<NamedConfig> {};

TEST_P(Parts, TogetherAreTheWhole) {
  const Model whole(GetParam().config);
  for (const Index count : {2, 4}) {
    std::vector<Model> parts;
    for (Index part = 0; part < count; ++part)
      parts.emplace_back(GetParam().config, Partition{count, part});
    for (Index u = 0; u < whole.unit_count(); ++u)
      for (std::size_t p = 0; p < whole.unit(u).params.size(); ++p) {
        const ParamDesc& param = whole.unit(u).params[p];
        SCOPED_TRACE(param.name);
        std::vector<int> seen(static_cast<std::size_t>(param.elements()));
        const std::vector<float> expected = values_of(param, 0, param.elements());
        int counted = 0;
        for (const Model& model : parts) {
          EXPECT_EQ(model.unit(u).slab_elements, parts.front().unit(u).slab_elements);
          const ParamDesc& part = model.unit(u).params[p];
          EXPECT_EQ(part.name, param.name);
          EXPECT_EQ(part.whole_shape, param.shape);
          counted += part.counted() ? 1 : 0;
          // Cut anywhere, what is written is the same.
          const Index cut = part.elements() / 3;
          std::vector<float> values = values_of(part, 0, cut);
          const std::vector<float> rest = values_of(part, cut, part.elements() - cut);
          values.insert(values.end(), rest.begin(), rest.end());
          Index in_runs = 0;
          part.for_each_run(0, part.elements(), [&](const PartRun& run) {
            for (Index i = 0; i < run.count; ++i) {
              const auto at_whole = static_cast<std::size_t>(run.whole + i);
              const auto at_part = static_cast<std::size_t>(run.part + i);
              ASSERT_LT(at_whole, seen.size());
              EXPECT_EQ(values[at_part], expected[at_whole]);
              values[at_part] = 0;
              ++seen[at_whole];
            }
            in_runs += run.count;
          });
          // What is in no run pads a table, and is zero.
          for (const float value : values) EXPECT_EQ(value, 0);
          if (param.role != ParamRole::token_table && param.role != ParamRole::lm_head) {
            EXPECT_EQ(in_runs, part.elements());
          }
        }
        const int times = param.shard.divided() ? 1 : static_cast<int>(count);
        EXPECT_EQ(seen, std::vector<int>(seen.size(), times));
        EXPECT_EQ(counted, param.shard.divided() ? count : 1);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, Parts, ::testing::ValuesIn(divisible_configs()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(Partitioned, FusedTensorsAreCutGroupByGroup) {
  ModelConfig config = small_gpt2();
  config.heads = config.kv_heads = 4;
  config.head_dim = 2;
  config.hidden = 3;
  config.intermediate = 4;
  const Model part(config, {2, 1});
  // Rows of q0..q7 k0..k7 v0..v7; the second part has the second four of each.
  const ParamDesc& qkv = *part.unit(1).find(ParamRole::qkv);
  EXPECT_EQ(qkv.shape, (std::vector<Index>{3, 12}));
  std::vector<Index> whole;
  qkv.for_each_run(2, 12, [&](const PartRun& run) {
    EXPECT_EQ(run.part, 2 + static_cast<Index>(whole.size()));
    for (Index i = 0; i < run.count; ++i) whole.push_back(run.whole + i);
  });
  EXPECT_EQ(whole, (std::vector<Index>{6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29}));
  EXPECT_EQ(part.part_config().heads, 2);
  EXPECT_EQ(part.config().heads, 4);
}

TEST(Partitioned, VocabularyIsPaddedAtItsEnd) {
  ModelConfig config = small_gpt2();
  config.heads = config.kv_heads = config.intermediate = 4;
  config.vocabulary = 5;
  for (const auto& [index, first, count] :
       {std::array<Index, 3>{0, 0, 2}, {1, 2, 2}, {2, 4, 1}, {3, 6, 0}}) {
    const Model model(config, {4, index});
    EXPECT_EQ(model.part_config().vocabulary, 2);
    EXPECT_EQ(model.vocabulary().first, first);
    EXPECT_EQ(model.vocabulary().count, count);
  }
}

TEST(Partitioned, RefusesWhatDoesNotDivideAndSaysWhatDoes) {
  ModelConfig config = small_llama();
  config.heads = 12;
  config.kv_heads = 4;
  config.intermediate = 36;
  EXPECT_NO_THROW(Model(config, {2, 1}));
  try {
    const Model model(config, {3, 0});
    FAIL() << "three parts of four key/value heads";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("can be 1, 2, 4"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Model(config, {2, 2}), LogicError);
}

}  // namespace
}  // namespace megatrain::modeltest
