#pragma once
/// @file
/// Small models, together using every switch of ModelConfig.

#include <string>
#include <vector>

#include "core/model/config.h"

namespace megatrain::modeltest {

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

inline ModelConfig small_llama() {
  ModelConfig config;
  config.model_type = "llama";
  config.vocabulary = 67;
  config.hidden = 28;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.intermediate = 37;
  config.max_positions = 32;
  config.rope = {.kind = RopeKind::plain, .theta = 100};
  return config;
}

inline ModelConfig small_gpt2() {
  ModelConfig config;
  config.model_type = "gpt2";
  config.vocabulary = 67;
  config.hidden = 21;
  config.layers = 2;
  config.heads = config.kv_heads = 3;
  config.head_dim = 7;
  config.intermediate = 50;
  config.max_positions = 19;
  config.norm = ops::NormKind::layer;
  config.norm_eps = 1e-5;
  config.mlp = MlpKind::gelu;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.fused_qkv = config.weights_in_out = true;
  config.learned_positions = config.tied_embeddings = true;
  return config;
}

inline std::vector<NamedConfig> small_configs() {
  const auto llama = [](auto change) {
    ModelConfig config = small_llama();
    change(config);
    return config;
  };
  const auto gpt2 = [](auto change) {
    ModelConfig config = small_gpt2();
    change(config);
    return config;
  };
  return {
      {"llama", small_llama()},
      {"all biases, tied", llama([](ModelConfig& c) {
         c.qkv_bias = c.output_bias = c.mlp_bias = c.tied_embeddings = true;
       })},
      {"multi-head, yarn", llama([](ModelConfig& c) {
         c.kv_heads = 4;
         c.rope.kind = RopeKind::yarn;
         c.rope.factor = 4;
       })},
      {"multi-query, windows", llama([](ModelConfig& c) {
         c.kv_heads = 1;
         c.windows = {4, 0};
       })},
      {"qwen2", llama([](ModelConfig& c) { c.qkv_bias = true; })},
      {"qwen3, tied", llama([](ModelConfig& c) {
         c.qk_norm = c.tied_embeddings = true;
         c.head_dim = 10;
       })},
      {"qwen3, biases", llama([](ModelConfig& c) { c.qk_norm = c.qkv_bias = true; })},
      // Sizes that leave no padding between q, k, v and between gate and up.
      {"side by side", llama([](ModelConfig& c) {
         c.hidden = 64;
         c.head_dim = 16;
         c.intermediate = 96;
       })},
      // Here the biases lie side by side too.
      {"side by side with biases", llama([](ModelConfig& c) {
         c.hidden = 8;
         c.heads = c.kv_heads = 32;
         c.head_dim = 64;
         c.intermediate = 2048;
         c.qkv_bias = c.mlp_bias = true;
       })},
      {"gpt2", small_gpt2()},
      {"gpt2, inverse layers, untied", gpt2([](ModelConfig& c) {
         c.scale_by_inverse_layer = true;
         c.tied_embeddings = false;
       })},
      {"gpt2, unscaled", gpt2([](ModelConfig& c) { c.scale_attention = false; })},
  };
}

}  // namespace megatrain::modeltest
