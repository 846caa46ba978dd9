#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/model/config.h"

namespace megatrain {

namespace {

struct Preset {
  std::string_view name;
  ModelConfig config;
};

/// 256 bytes, beginning and end of text.
constexpr Index kByteVocabulary = 258;

struct Shape {
  Index vocabulary, hidden, layers, heads, kv_heads, head_dim, intermediate, max_positions;
};

ModelConfig llama_family(std::string model_type, const Shape& shape, double theta, double eps) {
  ModelConfig config;
  config.model_type = std::move(model_type);
  config.vocabulary = shape.vocabulary;
  config.hidden = shape.hidden;
  config.layers = shape.layers;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.intermediate = shape.intermediate;
  config.max_positions = shape.max_positions;
  config.norm_eps = eps;
  config.rope = {.kind = RopeKind::plain, .theta = theta};
  return config;
}

ModelConfig llama(const Shape& shape, double theta) {
  return llama_family("llama", shape, theta, 1e-5);
}

ModelConfig qwen2(const Shape& shape, double eps, bool tied) {
  ModelConfig config = llama_family("qwen2", shape, 1e6, eps);
  config.qkv_bias = true;
  config.tied_embeddings = tied;
  return config;
}

ModelConfig qwen3(const Shape& shape, bool tied) {
  ModelConfig config = llama_family("qwen3", shape, 1e6, 1e-6);
  config.qk_norm = true;
  config.tied_embeddings = tied;
  return config;
}

ModelConfig mistral(const Shape& shape, Index window) {
  ModelConfig config = llama_family("mistral", shape, 1e4, 1e-5);
  config.windows.assign(static_cast<std::size_t>(shape.layers), window);
  return config;
}

ModelConfig gpt2(const Shape& shape) {
  ModelConfig config = llama_family("gpt2", shape, 1e4, 1e-5);
  config.norm = ops::NormKind::layer;
  config.mlp = MlpKind::gelu;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.fused_qkv = config.weights_in_out = true;
  config.learned_positions = true;
  config.tied_embeddings = true;
  config.rope = {};
  return config;
}

std::vector<Preset> presets() {
  constexpr Index kByte = kByteVocabulary;
  return {
      {"llama-tiny", llama({kByte, 192, 4, 6, 2, 32, 512, 1024}, 1e4)},
      {"qwen2-tiny", qwen2({kByte, 192, 4, 6, 2, 32, 512, 1024}, 1e-6, true)},
      {"qwen3-tiny", qwen3({kByte, 192, 4, 8, 2, 32, 512, 1024}, true)},
      {"mistral-tiny", mistral({kByte, 192, 4, 6, 2, 32, 512, 1024}, 128)},
      {"gpt2-tiny", gpt2({kByte, 192, 4, 6, 6, 32, 768, 1024})},
      {"qwen2.5-0.5b", qwen2({151936, 896, 24, 14, 2, 64, 4864, 32768}, 1e-6, true)},
      {"qwen2.5-1.5b", qwen2({151936, 1536, 28, 12, 2, 128, 8960, 131072}, 1e-6, true)},
      {"qwen2.5-3b", qwen2({151936, 2048, 36, 16, 2, 128, 11008, 32768}, 1e-6, true)},
      {"qwen2.5-7b", qwen2({152064, 3584, 28, 28, 4, 128, 18944, 131072}, 1e-6, false)},
      {"qwen2.5-14b", qwen2({152064, 5120, 48, 40, 8, 128, 13824, 131072}, 1e-5, false)},
      {"qwen2.5-32b", qwen2({152064, 5120, 64, 40, 8, 128, 27648, 131072}, 1e-5, false)},
      {"qwen2.5-72b", qwen2({152064, 8192, 80, 64, 8, 128, 29568, 131072}, 1e-5, false)},
      {"llama-3-8b", llama({128256, 4096, 32, 32, 8, 128, 14336, 8192}, 5e5)},
      {"llama-3-70b", llama({128256, 8192, 80, 64, 8, 128, 28672, 8192}, 5e5)},
  };
}

}  // namespace

ModelConfig preset(std::string_view name) {
  for (const Preset& candidate : presets())
    if (candidate.name == name) return candidate.config;
  throw UserError(fmt::format("no model preset is called '{}'. Known presets: {}", name,
                              fmt::join(preset_names(), ", ")));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& candidate : presets()) names.emplace_back(candidate.name);
  return names;
}

}  // namespace megatrain
