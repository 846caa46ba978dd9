#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/hf_families.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

/// The values of a switch that change nothing. An absent or null switch is always off.
enum class Off : std::uint8_t {
  null,   ///< nothing but null
  no,     ///< false
  yes,    ///< true
  zero,   ///< the number 0
  one,    ///< the number 1
  empty,  ///< an empty object or array
};

constexpr unsigned bit(Family family) { return 1U << static_cast<unsigned>(family); }
constexpr unsigned kAll = bit(Family::llama) | bit(Family::mistral) | bit(Family::qwen2) |
                          bit(Family::qwen3) | bit(Family::gpt2);
constexpr unsigned kRotary = kAll & ~bit(Family::gpt2);
constexpr unsigned kWindowed = bit(Family::mistral) | bit(Family::qwen2) | bit(Family::qwen3);

struct Switch {
  std::string_view key;
  unsigned families;
  Off off;
  std::string_view why;
};

// Switches that other code of the same model types (or of their descendants under the same name)
// obeys and this program does not, and those of one model type that another does not have. What is
// implemented is read in hf_config.cpp instead.
constexpr Switch kSwitches[] = {
    // another kind of file or model
    {"quantization_config", kAll, Off::null, "quantized weights are not read"},
    {"compression_config", kAll, Off::null, "compressed weights are not read"},
    {"text_config", kAll, Off::null, "a language model inside a multimodal one is not read"},
    {"vision_config", kAll, Off::null, "multimodal models are not read"},
    {"audio_config", kAll, Off::null, "multimodal models are not read"},
    {"auto_map", kAll, Off::empty, "models with code of their own are not read"},
    {"is_encoder_decoder", kAll, Off::no, "only decoders are implemented"},
    {"tie_encoder_decoder", kAll, Off::no, "only decoders are implemented"},
    {"add_cross_attention", kAll, Off::no, "cross attention is not implemented"},
    {"pruned_heads", kAll, Off::empty, "pruned heads are not implemented"},
    // attention
    {"is_causal", kAll, Off::yes, "only causal attention is implemented"},
    {"use_bidirectional_attention", kAll, Off::no, "only causal attention is implemented"},
    {"alibi", kAll, Off::no, "ALiBi is not implemented"},
    {"attn_logit_softcapping", kAll, Off::null, "soft caps are not implemented"},
    {"final_logit_softcapping", kAll, Off::null, "soft caps are not implemented"},
    {"query_pre_attn_scalar", kAll, Off::null, "another softmax scale is not implemented"},
    {"attention_multiplier", kAll, Off::null, "another softmax scale is not implemented"},
    {"attention_chunk_size", kAll, Off::null, "chunked attention is not implemented"},
    {"clip_qkv", kAll, Off::null, "clipping q, k and v is not implemented"},
    {"qk_layernorm", kAll, Off::no, "this form of qk-norm is not implemented"},
    {"use_qk_norm", kAll, Off::no, "this form of qk-norm is not implemented"},
    {"attention_bias", bit(Family::mistral), Off::no, "mistral has no biases"},
    {"attention_bias", bit(Family::qwen2), Off::yes, "qwen2 always has q, k and v biases"},
    {"attention_bias", bit(Family::gpt2), Off::yes, "gpt2 always has biases"},
    {"mlp_bias", kWindowed, Off::no, "this model type has no MLP biases"},
    {"mlp_bias", bit(Family::gpt2), Off::yes, "gpt2 always has biases"},
    {"scale_attn_weights", kRotary, Off::yes, "this model type always scales by sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", kRotary, Off::no,
     "this model type scales all layers alike"},
    {"sliding_window", bit(Family::llama) | bit(Family::gpt2), Off::null,
     "this model type has no sliding window"},
    {"use_sliding_window", bit(Family::llama) | bit(Family::gpt2), Off::no,
     "this model type has no sliding window"},
    {"max_window_layers", bit(Family::mistral), Off::zero, "mistral has one window for all layers"},
    {"layer_types", bit(Family::gpt2), Off::null, "gpt2 has one kind of layer"},
    // shapes
    {"hidden_size", bit(Family::gpt2), Off::null, "gpt2 spells it n_embd"},
    {"intermediate_size", bit(Family::gpt2), Off::null, "gpt2 spells it n_inner"},
    {"num_hidden_layers", bit(Family::gpt2), Off::null, "gpt2 spells it n_layer"},
    {"num_attention_heads", bit(Family::gpt2), Off::null, "gpt2 spells it n_head"},
    {"num_key_value_heads", bit(Family::gpt2), Off::null, "gpt2 has as many as n_head"},
    {"head_dim", bit(Family::gpt2), Off::null, "gpt2's is n_embd / n_head"},
    {"max_position_embeddings", bit(Family::gpt2), Off::null, "gpt2 spells it n_positions"},
    {"n_embd", kRotary, Off::null, "this model type spells it hidden_size"},
    {"n_inner", kRotary, Off::null, "this model type spells it intermediate_size"},
    {"n_layer", kRotary, Off::null, "this model type spells it num_hidden_layers"},
    {"n_head", kRotary, Off::null, "this model type spells it num_attention_heads"},
    {"n_positions", kRotary, Off::null, "this model type spells it max_position_embeddings"},
    // activations and norms
    {"hidden_act", bit(Family::gpt2), Off::null, "gpt2 spells it activation_function"},
    {"activation_function", kRotary, Off::null, "this model type spells it hidden_act"},
    {"rms_norm_eps", bit(Family::gpt2), Off::null, "gpt2 spells it layer_norm_epsilon"},
    {"layer_norm_epsilon", kRotary, Off::null, "this model type spells it rms_norm_eps"},
    // positions
    {"partial_rotary_factor", kAll, Off::one, "partial rotary embeddings are not implemented"},
    {"rotary_pct", kAll, Off::one, "partial rotary embeddings are not implemented"},
    {"rope_interleaved", kAll, Off::no, "interleaved rotary embeddings are not implemented"},
    {"rope_local_base_freq", kAll, Off::null, "rotary bases per layer are not implemented"},
    {"no_rope_layers", kAll, Off::empty, "layers without rotary embeddings are not implemented"},
    {"no_rope_layer_interval", kAll, Off::null,
     "layers without rotary embeddings are not implemented"},
    {"use_mrope", kAll, Off::no, "multimodal rotary embeddings are not implemented"},
    {"original_max_position_embeddings", kRotary, Off::null,
     "it is read inside rope_scaling or rope_parameters only"},
    {"rope_theta", bit(Family::gpt2), Off::null, "gpt2 has learned positions"},
    {"rope_scaling", bit(Family::gpt2), Off::null, "gpt2 has learned positions"},
    {"rope_parameters", bit(Family::gpt2), Off::null, "gpt2 has learned positions"},
    // scales
    {"embedding_multiplier", kAll, Off::one, "scaled embeddings are not implemented"},
    {"residual_multiplier", kAll, Off::one, "scaled residuals are not implemented"},
    {"logits_scaling", kAll, Off::one, "scaled logits are not implemented"},
    {"logit_scale", kAll, Off::one, "scaled logits are not implemented"},
    // experts, tensor slicing, extra heads
    {"num_experts", kAll, Off::zero, "mixtures of experts are not implemented"},
    {"num_local_experts", kAll, Off::zero, "mixtures of experts are not implemented"},
    {"n_routed_experts", kAll, Off::zero, "mixtures of experts are not implemented"},
    {"num_nextn_predict_layers", kAll, Off::zero, "multi-token prediction is not implemented"},
    {"pretraining_tp", kAll, Off::one, "sliced matrix products are not implemented"},
};

bool is_off(const JsonValue& value, Off off) {
  const auto number = [&](double wanted) {
    if (const auto* integer = value.as<std::int64_t>())
      return static_cast<double>(*integer) == wanted;
    const auto* real = value.as<double>();
    return real != nullptr && *real == wanted;
  };
  const auto flag = [&](bool wanted) {
    const auto* found = value.as<bool>();
    return found != nullptr && *found == wanted;
  };
  switch (off) {
    case Off::null:
      return false;
    case Off::no:
      return flag(false);
    case Off::yes:
      return flag(true);
    case Off::zero:
      return number(0);
    case Off::one:
      return number(1);
    case Off::empty:
      if (const auto* object = value.as<JsonValue::Object>()) return object->empty();
      if (const auto* array = value.as<JsonValue::Array>()) return array->empty();
      return false;
  }
  return false;
}

constexpr std::string_view kDropouts[] = {"attention_dropout", "hidden_dropout", "resid_pdrop",
                                          "embd_pdrop", "attn_pdrop"};
/// gpt2's class default: silence means this much.
constexpr std::string_view kGpt2Dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
constexpr double kGpt2Dropout = 0.1;

/// A key that the model types read in hf_config.cpp, or that has no effect on their training.
struct Known {
  std::string_view key;
  unsigned families;
};
constexpr Known kKnown[] = {
    {"_attn_implementation_autoset", kAll},
    {"_name_or_path", kAll},
    {"activation_function", bit(Family::gpt2)},
    {"architectures", kAll},
    {"attention_bias", bit(Family::llama) | bit(Family::qwen3)},
    {"bos_token_id", kAll},
    {"chunk_size_feed_forward", kAll},
    {"dtype", kAll},
    {"eos_token_id", kAll},
    {"gradient_checkpointing", kAll},
    {"head_dim", kRotary},
    {"hidden_act", kRotary},
    {"hidden_size", kRotary},
    {"id2label", kAll},
    {"initializer_range", kAll},
    {"intermediate_size", kRotary},
    {"label2id", kAll},
    {"layer_norm_epsilon", bit(Family::gpt2)},
    {"layer_types", kRotary},
    {"max_position_embeddings", kRotary},
    {"max_window_layers", bit(Family::qwen2) | bit(Family::qwen3)},
    {"mlp_bias", bit(Family::llama)},
    {"model_type", kAll},
    {"n_ctx", bit(Family::gpt2)},
    {"n_embd", bit(Family::gpt2)},
    {"n_head", bit(Family::gpt2)},
    {"n_inner", bit(Family::gpt2)},
    {"n_layer", bit(Family::gpt2)},
    {"n_positions", bit(Family::gpt2)},
    {"num_attention_heads", kRotary},
    {"num_hidden_layers", kRotary},
    {"num_key_value_heads", kRotary},
    {"output_attentions", kAll},
    {"output_hidden_states", kAll},
    {"pad_token_id", kAll},
    {"reorder_and_upcast_attn", bit(Family::gpt2)},
    {"return_dict", kAll},
    {"rms_norm_eps", kRotary},
    {"rope_parameters", kRotary},
    {"rope_scaling", kRotary},
    {"rope_theta", kRotary},
    {"scale_attn_by_inverse_layer_idx", bit(Family::gpt2)},
    {"scale_attn_weights", bit(Family::gpt2)},
    {"sliding_window", kWindowed},
    {"summary_activation", bit(Family::gpt2)},
    {"summary_first_dropout", bit(Family::gpt2)},
    {"summary_proj_to_labels", bit(Family::gpt2)},
    {"summary_type", bit(Family::gpt2)},
    {"summary_use_proj", bit(Family::gpt2)},
    {"task_specific_params", kAll},
    {"tie_word_embeddings", kAll},
    {"torch_dtype", kAll},
    {"transformers_version", kAll},
    {"use_cache", kAll},
    {"use_sliding_window", kWindowed},
    {"vocab_size", kAll},
};

template <std::size_t N>
bool listed(const std::string_view (&list)[N], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool is_known(std::string_view key, Family family) {
  return std::any_of(std::begin(kKnown), std::end(kKnown), [&](const Known& known) {
    return known.key == key && (known.families & bit(family)) != 0;
  });
}

}  // namespace

const FamilyInfo* find_family(std::string_view model_type) {
  for (const FamilyInfo& info : kFamilies)
    if (info.model_type == model_type) return &info;
  return nullptr;
}

void refuse_unknown_switches(const Fields& config, const FamilyInfo& family) {
  for (const Switch& entry : kSwitches) {
    if ((entry.families & bit(family.family)) == 0) continue;
    const JsonValue* value = config.given(entry.key);
    if (value != nullptr && !is_off(*value, entry.off)) throw config.refusal(entry.key, entry.why);
  }
}

std::vector<std::string> configuration_notes(const Fields& config, const FamilyInfo& family) {
  std::vector<std::string> notes;
  for (const std::string_view key : kDropouts) {
    const bool gpt2 = family.family == Family::gpt2 && listed(kGpt2Dropouts, key);
    const bool silent = config.find(key) == nullptr;
    const double rate = config.number(key).value_or(gpt2 && silent ? kGpt2Dropout : 0.0);
    if (rate != 0)
      notes.push_back(fmt::format("{}: {} is {}{}; dropout is not implemented, training uses 0",
                                  config.source(), key, rate, silent ? " by default" : ""));
  }
  std::vector<std::string> unread;
  for (const JsonMember& member : config.members()) {
    const auto is_switch = [&](const Switch& entry) {
      return entry.key == member.name && (entry.families & bit(family.family)) != 0;
    };
    if (!is_known(member.name, family.family) && !listed(kDropouts, member.name) &&
        std::none_of(std::begin(kSwitches), std::end(kSwitches), is_switch) && unread.size() < 20)
      unread.push_back(quote(member.name));
  }
  if (!unread.empty())
    notes.push_back(fmt::format("{}: keys that have no effect here: {}", config.source(),
                                fmt::join(unread, ", ")));
  return notes;
}

}  // namespace megatrain::io
