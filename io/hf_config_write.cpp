#include <fmt/format.h>

#include <algorithm>

#include "io/hf_config.h"
#include "io/hf_families.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// As transformers spells it.
std::string_view torch_name(DType type) { return type == DType::f32 ? "float32" : "bfloat16"; }

void write_tokens(JsonWriter& json, const SpecialTokens& tokens) {
  const auto member = [&](std::string_view key, std::optional<Index> id) {
    json.key(key);
    id ? json.value(*id) : json.null();
  };
  member("bos_token_id", tokens.begin);
  member("eos_token_id", tokens.end);
}

/// The transformers 4 spelling, which transformers 5 reads too.
void write_rope(JsonWriter& json, const RopeConfig& rope) {
  json.member("rope_theta", rope.theta).key("rope_scaling");
  if (rope.kind == RopeKind::plain) {
    json.null();
    return;
  }
  json.begin_object();
  json.member("factor", rope.factor);
  if (rope.kind != RopeKind::linear && rope.original_max_positions > 0)
    json.member("original_max_position_embeddings", rope.original_max_positions);
  if (rope.kind == RopeKind::llama3) {
    json.member("low_freq_factor", rope.low_freq_factor);
    json.member("high_freq_factor", rope.high_freq_factor);
    json.member("rope_type", "llama3");
  } else if (rope.kind == RopeKind::yarn) {
    json.member("beta_fast", rope.beta_fast).member("beta_slow", rope.beta_slow);
    if (rope.attention_factor) json.member("attention_factor", *rope.attention_factor);
    if (rope.mscale) json.member("mscale", *rope.mscale);
    if (rope.mscale_all_dim) json.member("mscale_all_dim", *rope.mscale_all_dim);
    json.member("truncate", rope.truncate).member("rope_type", "yarn");
  } else {
    json.member("rope_type", "linear");
  }
  json.end_object();
}

void write_windows(JsonWriter& json, const ModelConfig& config, Family family) {
  const Index window =
      config.windows.empty() ? 0 : *std::max_element(config.windows.begin(), config.windows.end());
  json.key("sliding_window");
  window > 0 ? json.value(window) : json.null();
  if (family == Family::mistral) return;
  json.member("use_sliding_window", window > 0);
  const auto first =
      std::find_if(config.windows.begin(), config.windows.end(), [](Index w) { return w > 0; });
  json.member("max_window_layers",
              window > 0 ? static_cast<Index>(first - config.windows.begin()) : config.layers);
  if (window == 0) return;
  json.key("layer_types").begin_array();
  for (const Index w : config.windows) json.value(w > 0 ? "sliding_attention" : "full_attention");
  json.end_array();
}

void write_gpt2(JsonWriter& json, const ModelConfig& config) {
  json.member("activation_function", "gelu_new");
  json.member("attn_pdrop", 0.0).member("embd_pdrop", 0.0).member("resid_pdrop", 0.0);
  json.member("layer_norm_epsilon", config.norm_eps);
  json.member("n_embd", config.hidden).member("n_head", config.heads);
  json.member("n_inner", config.intermediate).member("n_layer", config.layers);
  json.member("n_positions", config.max_positions);
  json.member("scale_attn_by_inverse_layer_idx", config.scale_by_inverse_layer);
  json.member("scale_attn_weights", config.scale_attention);
}

void write_llama_like(JsonWriter& json, const ModelConfig& config, Family family) {
  if (family == Family::llama || family == Family::qwen3)
    json.member("attention_bias", config.qkv_bias);
  json.member("attention_dropout", 0.0).member("head_dim", config.head_dim);
  json.member("hidden_act", "silu").member("hidden_size", config.hidden);
  json.member("intermediate_size", config.intermediate);
  json.member("max_position_embeddings", config.max_positions);
  if (family == Family::llama) json.member("mlp_bias", config.mlp_bias);
  json.member("num_attention_heads", config.heads);
  json.member("num_hidden_layers", config.layers);
  json.member("num_key_value_heads", config.kv_heads);
  json.member("rms_norm_eps", config.norm_eps);
  write_rope(json, config.rope);
  if (family != Family::llama) write_windows(json, config, family);
}

}  // namespace

std::string make_hf_config(const ModelConfig& config, DType type, const SpecialTokens& tokens) {
  const FamilyInfo* family = find_family(config.model_type);
  if (family == nullptr)
    throw UserError(
        fmt::format("model type {} has no Hugging Face form", quote(config.model_type)));
  JsonWriter json(2);
  json.begin_object();
  json.key("architectures").begin_array().value(family->architecture).end_array();
  json.member("model_type", config.model_type);
  write_tokens(json, tokens);
  if (family->family == Family::gpt2)
    write_gpt2(json, config);
  else
    write_llama_like(json, config, family->family);
  json.member("initializer_range", config.initializer_range);
  json.member("tie_word_embeddings", config.tied_embeddings);
  json.member("torch_dtype", torch_name(type));
  json.member("use_cache", true).member("vocab_size", config.vocabulary);
  json.end_object();
  const std::string text = json.text() + "\n";
  // What the words of the model type cannot say is lost in them; reading them back tells.
  if (parse_hf_config(text, "config.json").model != config)
    throw UserError(fmt::format("a {} of transformers cannot express this configuration",
                                quote(config.model_type)));
  return text;
}

std::string make_generation_config(const SpecialTokens& tokens) {
  JsonWriter json(2);
  json.begin_object().member("_from_model_config", true);
  write_tokens(json, tokens);
  json.end_object();
  return json.text() + "\n";
}

std::string rewrite_hf_config(std::string_view text, std::string_view source, DType type) {
  const JsonValue root = parse_json(text, source);
  const Fields config(root, std::string(source));
  JsonWriter json(2);
  json.begin_object();
  bool named = false;
  for (const JsonMember& member : config.members()) {
    if (member.name == "quantization_config") continue;
    json.key(member.name);
    if (member.name == "dtype" || member.name == "torch_dtype") {
      json.value(torch_name(type));
      named = true;
    } else {
      write(json, member.value);
    }
  }
  if (!named) json.member("torch_dtype", torch_name(type));
  json.end_object();
  return json.text() + "\n";
}

}  // namespace megatrain::io
