#include "core/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/model/test_configs.h"

namespace megatrain::modeltest {

namespace {

std::vector<std::string> names_of(const Unit& unit) {
  std::vector<std::string> names;
  for (const ParamDesc& param : unit.params) names.push_back(param.name);
  return names;
}

const ParamDesc& param(const Model& model, const std::string& name) {
  for (const Unit& unit : model.units())
    for (const ParamDesc& candidate : unit.params)
      if (candidate.name == name) return candidate;
  throw LogicError("no parameter " + name);
}

}  // namespace

TEST(ModelLayout, units_stand_in_forward_order) {
  const Model model(small_llama());
  ASSERT_EQ(model.unit_count(), 4);
  EXPECT_EQ(model.unit(0).name(), "embedding");
  EXPECT_EQ(model.unit(1).name(), "block 0");
  EXPECT_EQ(model.unit(2).name(), "block 1");
  EXPECT_EQ(model.unit(3).name(), "head");
  EXPECT_EQ(model.head_unit(), 3);
}

TEST(ModelLayout, tensors_fill_their_slab_in_aligned_pieces) {
  for (const NamedConfig& named : small_configs()) {
    const Model model(named.config);
    for (const Unit& unit : model.units()) {
      Index end = 0;
      for (const ParamDesc& p : unit.params) {
        EXPECT_EQ(p.offset, end) << p.name;
        EXPECT_EQ(p.offset % kSlabAlignment, 0) << p.name;
        EXPECT_LT(p.padded_elements() - p.elements(), kSlabAlignment) << p.name;
        end += p.padded_elements();
      }
      EXPECT_EQ(unit.slab_elements, end);
      if (unit.kind == UnitKind::block) {
        EXPECT_EQ(end, model.max_block_elements());
      }
    }
  }
}

TEST(ModelLayout, names_are_distinct_and_roles_too) {
  for (const NamedConfig& named : small_configs()) {
    std::set<std::string> names;
    const Model model(named.config);
    for (const Unit& unit : model.units()) {
      std::set<ParamRole> roles;
      for (const ParamDesc& p : unit.params) {
        EXPECT_TRUE(names.insert(p.name).second) << p.name;
        EXPECT_TRUE(roles.insert(p.role).second) << p.name;
        EXPECT_EQ(unit.find(p.role), &p);
      }
    }
  }
}

TEST(ModelLayout, names_are_those_of_hugging_face) {
  ModelConfig config = small_llama();
  config.qk_norm = config.qkv_bias = true;
  const Model llama(config);
  EXPECT_EQ(names_of(llama.unit(0)), std::vector<std::string>{"model.embed_tokens.weight"});
  EXPECT_EQ(
      names_of(llama.unit(2)),
      (std::vector<std::string>{
          "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_proj.weight",
          "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
          "model.layers.1.self_attn.q_proj.bias", "model.layers.1.self_attn.k_proj.bias",
          "model.layers.1.self_attn.v_proj.bias", "model.layers.1.self_attn.q_norm.weight",
          "model.layers.1.self_attn.k_norm.weight", "model.layers.1.self_attn.o_proj.weight",
          "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight",
          "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"}));
  EXPECT_EQ(names_of(llama.unit(3)),
            (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));

  const Model gpt2(small_gpt2());
  EXPECT_EQ(names_of(gpt2.unit(0)),
            (std::vector<std::string>{"transformer.wte.weight", "transformer.wpe.weight"}));
  EXPECT_EQ(names_of(gpt2.unit(1)),
            (std::vector<std::string>{
                "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias"}));
  EXPECT_EQ(names_of(gpt2.unit(3)),
            (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias"}));
}

TEST(ModelLayout, shapes_are_as_files_store_them) {
  const Model llama(small_llama());
  EXPECT_EQ(param(llama, "model.layers.0.self_attn.k_proj.weight").shape,
            (std::vector<Index>{12, 28}));
  EXPECT_EQ(param(llama, "model.layers.0.self_attn.o_proj.weight").shape,
            (std::vector<Index>{28, 24}));
  const Model gpt2(small_gpt2());
  EXPECT_EQ(param(gpt2, "transformer.h.0.attn.c_attn.weight").shape, (std::vector<Index>{21, 63}));
  EXPECT_EQ(param(gpt2, "transformer.h.0.mlp.c_proj.weight").shape, (std::vector<Index>{50, 21}));
  EXPECT_EQ(param(gpt2, "transformer.wpe.weight").shape, (std::vector<Index>{19, 21}));
}

TEST(ModelLayout, a_tied_head_is_another_name_of_the_embedding) {
  ModelConfig config = small_llama();
  config.tied_embeddings = true;
  const Model model(config);
  EXPECT_EQ(param(model, "model.embed_tokens.weight").aliases,
            std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(model.unit(model.head_unit()).find(ParamRole::lm_head), nullptr);
}

TEST(ModelLayout, matrices_decay_and_nothing_else_does) {
  for (const NamedConfig& named : small_configs()) {
    const Model model(named.config);
    for (const Unit& unit : model.units())
      for (const ParamDesc& p : unit.params) EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
  }
}

TEST(ModelLayout, gpt2_starts_its_residual_projections_smaller) {
  const Model gpt2(small_gpt2());
  EXPECT_DOUBLE_EQ(param(gpt2, "transformer.h.1.attn.c_proj.weight").init_std, 0.02 / 2);
  EXPECT_DOUBLE_EQ(param(gpt2, "transformer.h.1.mlp.c_proj.weight").init_std, 0.02 / 2);
  EXPECT_DOUBLE_EQ(param(gpt2, "transformer.h.1.mlp.c_fc.weight").init_std, 0.02);
  const Model llama(small_llama());
  EXPECT_DOUBLE_EQ(param(llama, "model.layers.1.mlp.down_proj.weight").init_std, 0.02);
}

TEST(ModelFlops, a_lookup_is_no_product_and_a_tied_table_is_one) {
  const ModelConfig untied = small_llama();
  ModelConfig tied = untied;
  tied.tied_embeddings = true;
  const Index block = 28 * (24 + 12 + 12) + 24 * 28 + 3 * 28 * 37;
  EXPECT_EQ(Model(untied).multiplying_parameters(), 2 * block + 67 * 28);
  EXPECT_EQ(Model(tied).multiplying_parameters(), 2 * block + 67 * 28);
  EXPECT_EQ(Model(untied).parameter_count() - Model(tied).parameter_count(), 67 * 28);
  EXPECT_DOUBLE_EQ(model_flops_per_token(Model(untied), 100),
                   6.0 * double(2 * block + 67 * 28) + 6.0 * 2 * 24 * 100);
}

}  // namespace megatrain::modeltest
