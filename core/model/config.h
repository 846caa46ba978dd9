#pragma once
/// @file
/// The shape of a decoder model, in the core's own words. io reads it from a Hugging Face folder,
/// presets name common ones; nothing below depends on a model_type.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/ops/norm.h"

namespace megatrain {

enum class MlpKind : std::uint8_t { swiglu, gelu };

enum class RopeKind : std::uint8_t { none, plain, linear, llama3, yarn };

/// How rotary frequencies are made; formulas and defaults as in transformers' rope utilities.
struct RopeConfig {
  RopeKind kind = RopeKind::none;
  double theta = 10000.0;
  double factor = 1.0;                          ///< linear, llama3, yarn
  double low_freq_factor = 1.0;                 ///< llama3
  double high_freq_factor = 4.0;                ///< llama3
  Index original_max_positions = 0;             ///< llama3, yarn; 0: the model's max_positions
  double beta_fast = 32.0;                      ///< yarn
  double beta_slow = 1.0;                       ///< yarn
  std::optional<double> attention_factor = {};  ///< yarn: overrides the computed one
  std::optional<double> mscale = {};            ///< yarn
  std::optional<double> mscale_all_dim = {};    ///< yarn
  bool truncate = true;                         ///< yarn: round the correction range
  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  /// As config.json spells it. Names tensors and their initial spread; the computation depends on
  /// the fields below alone.
  std::string model_type;
  Index vocabulary = 0;
  Index hidden = 0;
  Index layers = 0;
  Index heads = 0;
  Index kv_heads = 0;
  Index head_dim = 0;  ///< heads * head_dim need not be hidden
  Index intermediate = 0;
  Index max_positions = 0;
  ops::NormKind norm = ops::NormKind::rms;
  double norm_eps = 1e-6;
  MlpKind mlp = MlpKind::swiglu;
  bool qkv_bias = false;
  bool output_bias = false;  ///< of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;         ///< RMSNorm over head_dim on each head of q and k, before rope
  bool fused_qkv = false;       ///< one qkv tensor (gpt2), else three
  bool weights_in_out = false;  ///< linear weights stored [in, out] (gpt2), else [out, in]
  bool learned_positions = false;
  bool tied_embeddings = false;
  RopeConfig rope;
  /// Keys that a query of layer i sees, itself included; 0: all. Empty: no layer has a window.
  std::vector<Index> windows;
  /// Softmax scale of layer i is 1/sqrt(head_dim), further divided by i + 1 with this (gpt2).
  bool scale_by_inverse_layer = false;
  /// false: no 1/sqrt(head_dim) (gpt2's scale_attn_weights).
  bool scale_attention = true;
  double initializer_range = 0.02;

  [[nodiscard]] Index window(Index layer) const {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] Index qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  bool operator==(const ModelConfig&) const = default;
};

/// Refuses shapes that cannot work (a count below 1, heads not a multiple of kv_heads, an odd
/// head_dim with rope, ...), by name. @throws UserError
void validate(const ModelConfig& config);

/// A named shape with random initialisation: "llama-tiny", "qwen2.5-7b", "llama-3-8b", ...
/// @throws UserError naming the known ones
ModelConfig preset(std::string_view name);
std::vector<std::string> preset_names();

/// Rotary tables for positions [0, positions): [positions, head_dim / 2] each, angles made in
/// fp64, the attention factor multiplied in, then rounded to fp32.
struct RopeTables {
  std::vector<float> cosine, sine;
};
RopeTables rope_tables(const ModelConfig& config, Index positions);

}  // namespace megatrain
