#include "io/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/hf_families.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// More layers than this is no model but an attempt to fill the memory.
constexpr Index kMostLayers = 100'000;

struct RopeName {
  std::string_view name;
  RopeKind kind;
};
constexpr RopeName kRopeNames[] = {{"default", RopeKind::plain},
                                   {"linear", RopeKind::linear},
                                   {"llama3", RopeKind::llama3},
                                   {"yarn", RopeKind::yarn}};

/// Keys that each kind obeys, besides rope_type, type and rope_theta.
std::vector<std::string_view> rope_keys(RopeKind kind) {
  switch (kind) {
    case RopeKind::linear:
      return {"factor"};
    case RopeKind::llama3:
      return {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    case RopeKind::yarn:
      return {"factor",    "original_max_position_embeddings",
              "beta_fast", "beta_slow",
              "mscale",    "mscale_all_dim",
              "truncate",  "attention_factor",
              "finetuned"};  // a remark of the first yarn models, without effect
    default:
      return {};
  }
}

double required_number(const Fields& fields, std::string_view key) {
  const auto value = fields.number(key);
  if (!value) throw UserError(fmt::format("{}: {} is missing", fields.source(), quote(key)));
  return *value;
}

/// One dictionary of either spelling.
RopeConfig parse_rope_dictionary(const Fields& fields, double theta) {
  const auto type = fields.text("rope_type");
  const auto legacy = fields.text("type");
  if (type && legacy && *type != *legacy)
    throw fields.refusal("type", fmt::format("'rope_type' says {}", quote(*type)));
  const std::string kind_name = type.value_or(legacy.value_or("default"));
  const auto* kind = std::find_if(std::begin(kRopeNames), std::end(kRopeNames),
                                  [&](const RopeName& row) { return row.name == kind_name; });
  if (kind == std::end(kRopeNames))
    throw fields.refusal(type ? "rope_type" : "type",
                         "implemented are default, linear, llama3 and yarn");

  const std::vector<std::string_view> keys = rope_keys(kind->kind);
  for (const JsonMember& member : fields.members()) {
    if (member.value.is_null() || member.name == "rope_type" || member.name == "type" ||
        member.name == "rope_theta" || std::count(keys.begin(), keys.end(), member.name) != 0)
      continue;
    if (member.value.as<JsonValue::Object>() != nullptr)
      throw fields.refusal(member.name, "rotary parameters per layer type are not implemented");
    if (member.name == "partial_rotary_factor" && fields.number(member.name) == 1.0) continue;
    throw fields.refusal(member.name,
                         fmt::format("not implemented for rope type {}", quote(kind_name)));
  }

  RopeConfig rope;
  rope.kind = kind->kind;
  rope.theta = fields.number("rope_theta").value_or(theta);
  if (kind->kind == RopeKind::plain) return rope;
  rope.factor = required_number(fields, "factor");
  if (kind->kind == RopeKind::linear) return rope;
  rope.original_max_positions = fields.count("original_max_position_embeddings", 0);
  if (kind->kind == RopeKind::llama3) {
    rope.low_freq_factor = required_number(fields, "low_freq_factor");
    rope.high_freq_factor = required_number(fields, "high_freq_factor");
    return rope;
  }
  rope.beta_fast = fields.number("beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = fields.number("beta_slow").value_or(rope.beta_slow);
  rope.attention_factor = fields.number("attention_factor");
  rope.mscale = fields.number("mscale");
  rope.mscale_all_dim = fields.number("mscale_all_dim");
  rope.truncate = fields.boolean("truncate").value_or(true);
  return rope;
}

/// rope_parameters (transformers 5), or rope_theta and rope_scaling (transformers 4).
RopeConfig parse_rope(const Fields& config) {
  const double theta = config.number("rope_theta").value_or(10000.0);
  const JsonValue* scaling = config.given("rope_scaling");
  const JsonValue* parameters = config.given("rope_parameters");
  const auto parse = [&](const JsonValue& value, std::string_view key) {
    return parse_rope_dictionary(Fields(value, fmt::format("{}: {}", config.source(), key)), theta);
  };
  if (scaling != nullptr && parameters != nullptr) {
    const RopeConfig rope = parse(*parameters, "rope_parameters");
    if (rope != parse(*scaling, "rope_scaling"))
      throw config.refusal("rope_scaling", "'rope_parameters' says something else");
    return rope;
  }
  if (parameters != nullptr) return parse(*parameters, "rope_parameters");
  if (scaling != nullptr) return parse(*scaling, "rope_scaling");
  RopeConfig rope;
  rope.kind = RopeKind::plain;
  rope.theta = theta;
  return rope;
}

/// Windows a layer by layer_types; nullopt when the config has none.
std::optional<std::vector<Index>> parse_layer_types(const Fields& config, Index layers,
                                                    std::optional<Index> window) {
  const JsonValue* value = config.given("layer_types");
  if (value == nullptr) return std::nullopt;
  const auto* list = value->as<JsonValue::Array>();
  if (list == nullptr || static_cast<Index>(list->size()) != layers)
    throw config.refusal("layer_types", fmt::format("it must list {} layers", layers));
  std::vector<Index> windows;
  for (const JsonValue& entry : *list) {
    const auto* type = entry.as<std::string>();
    if (type != nullptr && *type == "full_attention") {
      windows.push_back(0);
    } else if (type != nullptr && *type == "sliding_attention") {
      if (!window)
        throw config.refusal("layer_types", "sliding_attention, but the sliding window is off");
      windows.push_back(*window);
    } else {
      throw UserError(fmt::format(
          "{}: 'layer_types' holds {}: implemented are full_attention and sliding_attention",
          config.source(), quote(to_text(entry))));
    }
  }
  return windows;
}

std::vector<Index> parse_windows(const Fields& config, Family family, Index layers) {
  // The class default of mistral, qwen2 and qwen3; null switches the window off.
  constexpr Index kDefaultWindow = 4096;
  std::optional<Index> window;
  const bool has_window =
      family == Family::mistral ||
      (family != Family::llama && config.boolean("use_sliding_window").value_or(false));
  const JsonValue* sliding = config.find("sliding_window");
  if (has_window && (sliding == nullptr || !sliding->is_null()))
    window = config.count("sliding_window", kDefaultWindow);

  const auto by_type = parse_layer_types(config, layers, window);
  std::vector<Index> windows(static_cast<std::size_t>(layers), 0);
  if (family == Family::mistral) {
    // Its class has no such switch: sliding_window alone decides, so both must say the same.
    if (config.boolean("use_sliding_window").value_or(window.has_value()) != window.has_value())
      throw config.refusal("use_sliding_window",
                           "mistral knows 'sliding_window' only; null switches the window off");
    std::fill(windows.begin(), windows.end(), window.value_or(0));
    if (by_type && *by_type != windows)
      throw config.refusal("layer_types", "mistral has one window for all layers");
  } else if (by_type) {
    windows = *by_type;
  } else if (window) {
    constexpr Index kDefaultWindowLayers = 28;
    const Index first = config.integer("max_window_layers").value_or(kDefaultWindowLayers);
    if (first < 0) throw config.refusal("max_window_layers", "it must not be negative");
    for (Index i = first; i < layers; ++i) windows[static_cast<std::size_t>(i)] = *window;
  }
  const bool none = std::all_of(windows.begin(), windows.end(), [](Index w) { return w == 0; });
  return none ? std::vector<Index>() : windows;
}

/// hidden / heads, which must divide.
Index divided_head_dim(const Fields& config, Index hidden, Index heads, std::string_view key) {
  if (hidden % heads != 0)
    throw config.refusal(key, fmt::format("it must be a multiple of the {} attention heads when "
                                          "'head_dim' is not given",
                                          heads));
  return hidden / heads;
}

ModelConfig parse_gpt2(const Fields& config) {
  ModelConfig model;
  model.hidden = config.count("n_embd");
  model.layers = config.count("n_layer");
  model.heads = model.kv_heads = config.count("n_head");
  model.head_dim = divided_head_dim(config, model.hidden, model.heads, "n_embd");
  model.max_positions = config.count("n_positions", 1024);
  model.intermediate = config.count("n_inner", 4 * model.hidden);
  model.norm = ops::NormKind::layer;
  model.norm_eps = config.number("layer_norm_epsilon").value_or(1e-5);
  model.mlp = MlpKind::gelu;
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  model.fused_qkv = model.weights_in_out = model.learned_positions = true;
  model.scale_attention = config.boolean("scale_attn_weights").value_or(true);
  model.scale_by_inverse_layer = config.boolean("scale_attn_by_inverse_layer_idx").value_or(false);
  const std::string act = config.text("activation_function").value_or("gelu_new");
  if (act != "gelu_new" && act != "gelu_pytorch_tanh")
    throw config.refusal("activation_function", "implemented are gelu_new and gelu_pytorch_tanh");
  return model;
}

ModelConfig parse_llama_like(const Fields& config, const FamilyInfo& family) {
  ModelConfig model;
  model.hidden = config.count("hidden_size");
  model.layers = config.count("num_hidden_layers");
  model.heads = config.count("num_attention_heads");
  model.intermediate = config.count("intermediate_size");
  model.max_positions = config.count("max_position_embeddings", family.max_positions);
  // Null means "as many as heads" everywhere; silence means the class default.
  const bool kv_silent = config.find("num_key_value_heads") == nullptr;
  model.kv_heads = config.count("num_key_value_heads",
                                kv_silent ? family.kv_heads.value_or(model.heads) : model.heads);
  const bool dim_silent = config.find("head_dim") == nullptr;
  if (config.given("head_dim") != nullptr)
    model.head_dim = config.count("head_dim");
  else if (dim_silent && family.head_dim)
    model.head_dim = *family.head_dim;
  else
    model.head_dim = divided_head_dim(config, model.hidden, model.heads, "hidden_size");
  model.norm_eps = config.number("rms_norm_eps").value_or(1e-6);
  const std::string act = config.text("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish")
    throw config.refusal("hidden_act", "implemented is silu (swish)");

  const bool attention_bias = config.boolean("attention_bias").value_or(false);
  const Family name = family.family;
  if (name == Family::llama || name == Family::qwen3)
    model.qkv_bias = model.output_bias = attention_bias;
  else if (name == Family::qwen2)
    model.qkv_bias = true;
  if (name == Family::llama) model.mlp_bias = config.boolean("mlp_bias").value_or(false);
  model.qk_norm = name == Family::qwen3;
  model.rope = parse_rope(config);
  model.windows = parse_windows(config, name, model.layers);
  return model;
}

void check_architecture(const Fields& config, const FamilyInfo& family) {
  const JsonValue* value = config.given("architectures");
  if (value == nullptr) return;
  const auto* list = value->as<JsonValue::Array>();
  if (list != nullptr && list->empty()) return;
  if (list != nullptr && list->size() == 1)
    if (const auto* name = (*list)[0].as<std::string>())
      if (*name == family.architecture || *name == family.base_architecture) return;
  throw config.refusal("architectures", fmt::format("only {} is implemented for this model type",
                                                    family.architecture));
}

}  // namespace

std::vector<std::string> hf_model_types() {
  std::vector<std::string> names;
  for (const FamilyInfo& info : kFamilies) names.emplace_back(info.model_type);
  return names;
}

HfConfig parse_hf_config(std::string_view text, std::string_view source) {
  const JsonValue root = parse_json(text, source);
  const Fields config(root, std::string(source));
  const std::string type = config.text("model_type").value_or("");
  const FamilyInfo* family = find_family(type);
  if (family == nullptr)
    throw config.refusal("model_type",
                         fmt::format("implemented are {}", fmt::join(hf_model_types(), ", ")));
  refuse_unknown_switches(config, *family);
  check_architecture(config, *family);
  const std::string_view layers_key =
      family->family == Family::gpt2 ? "n_layer" : "num_hidden_layers";
  if (config.count(layers_key) > kMostLayers)
    throw config.refusal(layers_key, fmt::format("at most {} are read", kMostLayers));

  HfConfig parsed;
  parsed.model =
      family->family == Family::gpt2 ? parse_gpt2(config) : parse_llama_like(config, *family);
  parsed.model.model_type = type;
  parsed.model.vocabulary = config.count("vocab_size");
  parsed.model.tied_embeddings =
      config.boolean("tie_word_embeddings").value_or(family->tied_embeddings);
  parsed.model.initializer_range = config.number("initializer_range").value_or(0.02);
  try {
    validate(parsed.model);
  } catch (const UserError& error) {
    throw UserError(Error::with_context(source, error.what()));
  }
  parsed.notes = configuration_notes(config, *family);
  return parsed;
}

}  // namespace megatrain::io
