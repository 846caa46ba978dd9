#include <gtest/gtest.h>

#include <functional>

#include "core/model/config.h"
#include "core/model/model.h"
#include "tests/model/test_configs.h"

namespace megatrain::modeltest {

TEST(Preset, every_name_gives_a_valid_model) {
  for (const std::string& name : preset_names()) EXPECT_NO_THROW(validate(preset(name))) << name;
}

TEST(Preset, an_unknown_name_is_refused_with_the_known_ones) {
  try {
    preset("qwen2.5-8b");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("'qwen2.5-8b'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("qwen2.5-7b"), std::string::npos);
  }
}

TEST(Preset, real_shapes_have_the_published_number_of_parameters) {
  const std::vector<std::pair<std::string, Index>> published = {
      {"qwen2.5-0.5b", 494'032'768},   {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},   {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664}, {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648}, {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
  };
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(Model(preset(name)).parameter_count(), parameters) << name;
}

TEST(Preset, tiny_models_are_for_bytes_and_small) {
  for (const std::string& name : preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    const Model model(preset(name));
    EXPECT_EQ(model.config().vocabulary, 258) << name;
    EXPECT_LT(model.parameter_count(), 3'000'000) << name;
    EXPECT_GT(model.parameter_count(), 1'000'000) << name;
    EXPECT_EQ(name, model.config().model_type + "-tiny");
  }
}

struct BadConfig {
  std::string named;  ///< what the message must contain
  std::function<void(ModelConfig&)> change;
};

TEST(Validate, names_what_is_wrong) {
  const Index huge = Index{1} << 62;
  const std::vector<BadConfig> bad = {
      {"vocabulary", [](ModelConfig& c) { c.vocabulary = 0; }},
      {"vocabulary", [](ModelConfig& c) { c.vocabulary = Index{1} << 31; }},
      {"hidden", [](ModelConfig& c) { c.hidden = -1; }},
      {"layers", [](ModelConfig& c) { c.layers = 0; }},
      {"attention heads", [](ModelConfig& c) { c.heads = 0; }},
      {"key/value heads", [](ModelConfig& c) { c.kv_heads = 0; }},
      {"not a multiple", [](ModelConfig& c) { c.kv_heads = 3; }},
      {"head_dim", [](ModelConfig& c) { c.head_dim = 0; }},
      {"head_dim", [](ModelConfig& c) { c.head_dim = 7; }},
      {"intermediate", [](ModelConfig& c) { c.intermediate = 0; }},
      {"max_position", [](ModelConfig& c) { c.max_positions = 0; }},
      {"overflow", [=](ModelConfig& c) { c.hidden = huge; }},
      {"overflow", [=](ModelConfig& c) { c.head_dim = huge; }},
      {"epsilon", [](ModelConfig& c) { c.norm_eps = 0; }},
      {"initializer_range", [](ModelConfig& c) { c.initializer_range = -0.1; }},
      {"windows", [](ModelConfig& c) { c.windows = {4}; }},
      {"window", [](ModelConfig& c) { c.windows = {4, -1}; }},
      {"positions exclude", [](ModelConfig& c) { c.learned_positions = true; }},
      {"theta", [](ModelConfig& c) { c.rope.theta = 1; }},
      {"factor", [](ModelConfig& c) { c.rope = {.kind = RopeKind::linear, .factor = 0.5}; }},
      {"factor", [](ModelConfig& c) { c.rope = {.kind = RopeKind::yarn, .factor = 0}; }},
      {"high_freq_factor",
       [](ModelConfig& c) {
         c.rope = {.kind = RopeKind::llama3, .factor = 2, .high_freq_factor = 1};
       }},
      {"original_max",
       [](ModelConfig& c) {
         c.rope = {.kind = RopeKind::yarn, .factor = 2, .original_max_positions = -1};
       }},
      {"beta_fast",
       [](ModelConfig& c) { c.rope = {.kind = RopeKind::yarn, .factor = 2, .beta_fast = 0.5}; }},
      {"attention_factor",
       [](ModelConfig& c) {
         c.rope = {.kind = RopeKind::yarn, .factor = 2, .attention_factor = 0.0};
       }},
  };
  for (const BadConfig& example : bad) {
    ModelConfig config = small_llama();
    example.change(config);
    try {
      validate(config);
      ADD_FAILURE() << "accepted: " << example.named;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(example.named), std::string::npos) << error.what();
    }
    EXPECT_THROW(Model{config}, UserError);
  }
}

TEST(Validate, accepts_what_the_tests_use) {
  for (const NamedConfig& named : small_configs()) EXPECT_NO_THROW(validate(named.config));
}

}  // namespace megatrain::modeltest
