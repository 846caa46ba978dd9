#include "io/hf_config.h"

#include "io/json.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

/// A config of `model_type` with `extra` members ("\"k\": v, ..."), which replace equal ones.
std::string config_text(std::string_view model_type, std::string_view extra = "{}") {
  const std::string base =
      model_type == "gpt2"
          ? R"({"model_type":"gpt2","vocab_size":101,"n_embd":24,"n_layer":3,"n_head":4,
               "n_positions":64,"attn_pdrop":0.0,"resid_pdrop":0.0,"embd_pdrop":0.0})"
          : R"({"model_type":")" + std::string(model_type) +
                R"(","vocab_size":101,"hidden_size":24,"intermediate_size":52,
               "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,
               "head_dim":10,"max_position_embeddings":64,"rms_norm_eps":1e-05})";
  const JsonValue members = parse_json(base, "test");
  const JsonValue changes = parse_json(extra, "test");
  JsonWriter json;
  json.begin_object();
  for (const JsonMember& member : *members.as<JsonValue::Object>())
    if (changes.find(member.name) == nullptr) write(json.key(member.name), member.value);
  for (const JsonMember& member : *changes.as<JsonValue::Object>())
    write(json.key(member.name), member.value);
  json.end_object();
  return json.text();
}

ModelConfig model_of(std::string_view model_type, std::string_view extra = "{}") {
  return parse_hf_config(config_text(model_type, extra), "config.json").model;
}

TEST(HfConfig, ReadsLlama) {
  const ModelConfig model = model_of("llama");
  EXPECT_EQ(model.model_type, "llama");
  EXPECT_EQ(model.vocabulary, 101);
  EXPECT_EQ(model.hidden, 24);
  EXPECT_EQ(model.intermediate, 52);
  EXPECT_EQ(model.layers, 3);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 10);
  EXPECT_EQ(model.max_positions, 64);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.norm, ops::NormKind::rms);
  EXPECT_EQ(model.rope, (RopeConfig{.kind = RopeKind::plain, .theta = 10000.0}));
  EXPECT_FALSE(model.tied_embeddings || model.qkv_bias || model.output_bias || model.mlp_bias ||
               model.qk_norm || model.fused_qkv);
  EXPECT_TRUE(model.windows.empty());
  EXPECT_EQ(model.initializer_range, 0.02);

  const ModelConfig biased = model_of("llama", R"({"attention_bias":true,"mlp_bias":true})");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  EXPECT_TRUE(model_of("llama", R"({"tie_word_embeddings":true})").tied_embeddings);
}

TEST(HfConfig, NullAndSilenceMeanTheClassDefault) {
  EXPECT_EQ(model_of("llama", R"({"head_dim":null})").head_dim, 6);
  EXPECT_EQ(model_of("qwen3", R"({"head_dim":null})").head_dim, 6);
  EXPECT_EQ(model_of("llama", R"({"num_key_value_heads":null})").kv_heads, 4);
  EXPECT_EQ(model_of("mistral", R"({"num_key_value_heads":null})").kv_heads, 4);
  // Keys that are not there at all, as in hand-written files.
  const std::string bare = R"(","vocab_size":5,"hidden_size":64,"intermediate_size":8,
      "num_hidden_layers":1,"num_attention_heads":32})";
  const auto read = [&](const std::string& type) {
    return parse_hf_config("{\"model_type\":\"" + type + bare, "config.json").model;
  };
  EXPECT_EQ(read("llama").kv_heads, 32);
  EXPECT_EQ(read("llama").max_positions, 2048);
  EXPECT_EQ(read("mistral").kv_heads, 8);
  EXPECT_EQ(read("mistral").windows, std::vector<Index>{4096});
  EXPECT_EQ(read("mistral").max_positions, 131072);
  EXPECT_EQ(read("qwen2").kv_heads, 32);
  EXPECT_EQ(read("qwen2").head_dim, 2);
  EXPECT_EQ(read("qwen3").head_dim, 128);
  EXPECT_EQ(read("qwen3").max_positions, 32768);
}

TEST(HfConfig, ReadsQwen) {
  const ModelConfig qwen2 = model_of("qwen2");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias || qwen2.qk_norm || qwen2.mlp_bias);
  const ModelConfig qwen3 = model_of("qwen3");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_TRUE(model_of("qwen3", R"({"attention_bias":true})").output_bias);
}

TEST(HfConfig, ReadsGpt2) {
  const ModelConfig model = model_of("gpt2");
  EXPECT_EQ(model.hidden, 24);
  EXPECT_EQ(model.head_dim, 6);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.intermediate, 96);
  EXPECT_EQ(model.max_positions, 64);
  EXPECT_EQ(model.norm, ops::NormKind::layer);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.mlp, MlpKind::gelu);
  EXPECT_EQ(model.rope.kind, RopeKind::none);
  EXPECT_TRUE(model.tied_embeddings && model.qkv_bias && model.output_bias && model.mlp_bias &&
              model.fused_qkv && model.weights_in_out && model.learned_positions &&
              model.scale_attention);
  EXPECT_FALSE(model.scale_by_inverse_layer);
  EXPECT_EQ(model_of("gpt2", R"({"n_inner":50})").intermediate, 50);
  EXPECT_EQ(model_of("gpt2", R"({"n_inner":null})").intermediate, 96);
  EXPECT_FALSE(model_of("gpt2", R"({"tie_word_embeddings":false})").tied_embeddings);
  EXPECT_TRUE(
      model_of("gpt2", R"({"scale_attn_by_inverse_layer_idx":true})").scale_by_inverse_layer);
  EXPECT_FALSE(model_of("gpt2", R"({"scale_attn_weights":false})").scale_attention);
  EXPECT_NO_THROW(model_of("gpt2", R"({"activation_function":"gelu_pytorch_tanh",
                                       "reorder_and_upcast_attn":true})"));
}

TEST(HfConfig, BothRopeSpellingsAgree) {
  const auto same = [](std::string_view v4, std::string_view v5) {
    const RopeConfig rope = model_of("llama", v4).rope;
    EXPECT_EQ(rope, model_of("llama", v5).rope) << v4;
    return rope;
  };
  same(R"({"rope_theta":500000.0,"rope_scaling":null})",
       R"({"rope_parameters":{"rope_type":"default","rope_theta":500000.0}})");
  same(R"({"rope_theta":5e5})", R"({"rope_theta":5e5,"rope_parameters":{"rope_type":"default"}})");
  same(R"({"rope_scaling":{"type":"linear","factor":2}})",
       R"({"rope_parameters":{"rope_type":"linear","rope_theta":10000,"factor":2.0}})");
  const RopeConfig llama3 = same(
      R"({"rope_theta":500000,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,
          "high_freq_factor":4.0,"original_max_position_embeddings":32,"rope_type":"llama3"}})",
      R"({"rope_parameters":{"rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,
          "high_freq_factor":4.0,"original_max_position_embeddings":32,"rope_type":"llama3"}})");
  EXPECT_EQ(llama3.kind, RopeKind::llama3);
  EXPECT_EQ(llama3.original_max_positions, 32);
  const RopeConfig yarn = same(
      R"({"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":16,
          "mscale":1.0,"mscale_all_dim":0.5,"truncate":false,"attention_factor":null}})",
      R"({"rope_parameters":{"rope_type":"yarn","factor":4.0,"rope_theta":10000.0,
          "original_max_position_embeddings":16,"mscale":1.0,"mscale_all_dim":0.5,
          "truncate":false}})");
  EXPECT_EQ(yarn.kind, RopeKind::yarn);
  EXPECT_EQ(yarn.mscale, 1.0);
  EXPECT_EQ(yarn.mscale_all_dim, 0.5);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  // Both spellings in one file must say the same.
  EXPECT_NO_THROW(model_of("llama", R"({"rope_scaling":{"type":"linear","factor":2},
                                        "rope_parameters":{"rope_type":"linear","factor":2}})"));
}

TEST(HfConfig, ReadsWindows) {
  using Windows = std::vector<Index>;
  EXPECT_EQ(model_of("mistral", R"({"sliding_window":7})").windows, (Windows{7, 7, 7}));
  EXPECT_EQ(model_of("mistral", R"({"sliding_window":null})").windows, Windows());
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(model_of(type, R"({"sliding_window":7,"max_window_layers":1})").windows, Windows());
    EXPECT_EQ(
        model_of(type, R"({"use_sliding_window":true,"sliding_window":7,"max_window_layers":1})")
            .windows,
        (Windows{0, 7, 7}));
    EXPECT_EQ(model_of(type, R"({"use_sliding_window":true,"sliding_window":7})").windows,
              Windows());
    EXPECT_EQ(model_of(type, R"({"use_sliding_window":true,"sliding_window":7,
                "layer_types":["sliding_attention","full_attention","sliding_attention"]})")
                  .windows,
              (Windows{7, 0, 7}));
  }
  const char* full =
      R"({"layer_types":["full_attention","full_attention","full_attention"],
          "sliding_window":null})";
  EXPECT_EQ(model_of("llama", full).windows, Windows());
  EXPECT_EQ(model_of("mistral", full).windows, Windows());
}

struct Refusal {
  std::string name, model_type, extra;
  std::vector<std::string> says;
};

std::vector<Refusal> refusals() {
  std::vector<Refusal> list = {
      {"UnknownType", "llama", R"({"model_type":"mamba"})", {"model_type", "\"mamba\"", "llama"}},
      {"TypeMissing", "llama", R"({"model_type":null})", {"model_type"}},
      {"Moe", "llama", R"({"model_type":"mixtral"})", {"model_type", "mixtral"}},
      {"HiddenAct", "llama", R"({"hidden_act":"gelu"})", {"hidden_act", "gelu", "silu"}},
      {"Gpt2Act", "gpt2", R"({"activation_function":"gelu"})", {"activation_function"}},
      {"Gpt2Relu", "gpt2", R"({"activation_function":"relu"})", {"activation_function", "relu"}},
      {"RopeDynamic",
       "llama",
       R"({"rope_scaling":{"rope_type":"dynamic","factor":2}})",
       {"rope_type", "dynamic", "yarn"}},
      {"RopeLegacyDynamic",
       "llama",
       R"({"rope_scaling":{"type":"dynamic","factor":2}})",
       {"dynamic"}},
      {"RopeLongrope", "llama", R"({"rope_parameters":{"rope_type":"longrope"}})", {"longrope"}},
      {"RopeMrope", "qwen2", R"({"rope_scaling":{"type":"mrope","mrope_section":[1]}})", {"mrope"}},
      {"RopeNested",
       "qwen3",
       R"({"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":1e4}}})",
       {"full_attention", "per layer"}},
      {"RopeUnknownKey",
       "llama",
       R"({"rope_scaling":{"type":"linear","factor":2,"beta":3}})",
       {"'beta' is 3"}},
      {"RopePartial",
       "llama",
       R"({"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}})",
       {"partial_rotary_factor"}},
      {"RopeFactorMissing", "llama", R"({"rope_scaling":{"type":"linear"}})", {"'factor'"}},
      {"RopeFactorText",
       "llama",
       R"({"rope_scaling":{"type":"linear","factor":"2"}})",
       {"'factor' is \"2\"", "number"}},
      {"RopeTypesDiffer",
       "llama",
       R"({"rope_scaling":{"type":"linear","rope_type":"yarn","factor":2}})",
       {"'type'", "yarn"}},
      {"RopeSpellingsDiffer",
       "llama",
       R"({"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"}})",
       {"rope_scaling", "rope_parameters"}},
      {"RopeNotAnObject", "llama", R"({"rope_scaling":2})", {"rope_scaling", "object"}},
      {"LlamaWindow", "llama", R"({"sliding_window":4096})", {"sliding_window"}},
      {"UnknownLayerType",
       "qwen3",
       R"({"layer_types":["full_attention","full_attention","linear_attention"]})",
       {"layer_types", "linear_attention"}},
      {"LayerTypesLength",
       "qwen3",
       R"({"layer_types":["full_attention"]})",
       {"layer_types", "3 layers"}},
      {"SlidingWithoutWindow",
       "qwen3",
       R"({"layer_types":["full_attention","full_attention","sliding_attention"]})",
       {"sliding_attention", "off"}},
      {"MistralMixedLayers",
       "mistral",
       R"({"sliding_window":5,"layer_types":["full_attention","full_attention",
           "sliding_attention"]})",
       {"layer_types", "one window"}},
      {"MistralBias", "mistral", R"({"attention_bias":true})", {"attention_bias", "no biases"}},
      {"Qwen2NoBias", "qwen2", R"({"attention_bias":false})", {"attention_bias"}},
      {"Qwen2MlpBias", "qwen2", R"({"mlp_bias":true})", {"mlp_bias"}},
      {"Gpt2NoBias", "gpt2", R"({"attention_bias":false})", {"attention_bias", "always"}},
      {"Gpt2NoMlpBias", "gpt2", R"({"mlp_bias":false})", {"mlp_bias", "always"}},
      {"Gpt2Act2", "gpt2", R"({"hidden_act":"gelu_new"})", {"hidden_act", "activation_function"}},
      {"Gpt2RmsEps", "gpt2", R"({"rms_norm_eps":1e-6})", {"rms_norm_eps", "layer_norm_epsilon"}},
      {"Gpt2Theta", "gpt2", R"({"rope_theta":1e4})", {"rope_theta", "learned positions"}},
      {"LlamaInverseLayer",
       "llama",
       R"({"scale_attn_by_inverse_layer_idx":true})",
       {"scale_attn_by_inverse_layer_idx"}},
      {"Qwen3Unscaled", "qwen3", R"({"scale_attn_weights":false})", {"scale_attn_weights"}},
      {"LlamaAct", "llama", R"({"activation_function":"silu"})", {"hidden_act"}},
      {"LlamaEps", "llama", R"({"layer_norm_epsilon":1e-5})", {"rms_norm_eps"}},
      {"LlamaEmbd", "llama", R"({"n_embd":24})", {"n_embd", "hidden_size"}},
      {"LlamaPositions", "llama", R"({"n_positions":64})", {"max_position_embeddings"}},
      {"MistralWindowOff",
       "mistral",
       R"({"sliding_window":5,"use_sliding_window":false})",
       {"use_sliding_window", "null"}},
      {"MistralWindowOn",
       "mistral",
       R"({"sliding_window":null,"use_sliding_window":true})",
       {"use_sliding_window"}},
      {"MistralWindowLayers",
       "mistral",
       R"({"max_window_layers":2})",
       {"max_window_layers", "one window"}},
      {"Gpt2CrossAttention", "gpt2", R"({"add_cross_attention":true})", {"add_cross_attention"}},
      {"Gpt2HiddenSize", "gpt2", R"({"hidden_size":24})", {"hidden_size", "n_embd"}},
      {"Gpt2Rope", "gpt2", R"({"rope_scaling":{"type":"linear","factor":2}})", {"rope_scaling"}},
      {"OtherHead",
       "llama",
       R"({"architectures":["LlamaForSequenceClassification"]})",
       {"architectures", "LlamaForCausalLM"}},
      {"HeadsNotDividing", "llama", R"({"num_key_value_heads":3})", {"config.json", "3"}},
      {"HiddenNotDividing",
       "llama",
       R"({"head_dim":null,"hidden_size":25})",
       {"hidden_size", "25", "4 attention heads"}},
      {"Zero", "llama", R"({"num_hidden_layers":0})", {"num_hidden_layers", "at least 1"}},
      {"Negative", "llama", R"({"hidden_size":-1})", {"hidden_size", "-1"}},
      {"Huge", "llama", R"({"vocab_size":9223372036854775807})", {"vocab_size", "2^31"}},
      {"ManyLayers", "llama", R"({"num_hidden_layers":2000000000})", {"num_hidden_layers"}},
      {"Fraction", "llama", R"({"hidden_size":24.0})", {"hidden_size", "whole number"}},
      {"Text", "llama", R"({"hidden_size":"24"})", {"hidden_size", "whole number"}},
      {"BoolText", "llama", R"({"attention_bias":"yes"})", {"attention_bias", "true or false"}},
      {"TieText", "llama", R"({"tie_word_embeddings":1})", {"tie_word_embeddings"}},
  };
  // Switches that no model type here obeys: one row each.
  const std::pair<const char*, const char*> switches[] = {
      {"quantization_config", R"({"quant_method":"gptq"})"},
      {"text_config", R"({"hidden_size":1})"},
      {"vision_config", "{}"},
      {"auto_map", R"({"AutoModelForCausalLM":"x.y"})"},
      {"is_encoder_decoder", "true"},
      {"tie_encoder_decoder", "true"},
      {"pruned_heads", R"({"0":[1]})"},
      {"is_causal", "false"},
      {"use_bidirectional_attention", "true"},
      {"alibi", "true"},
      {"attn_logit_softcapping", "50.0"},
      {"final_logit_softcapping", "30.0"},
      {"query_pre_attn_scalar", "256"},
      {"attention_multiplier", "0.5"},
      {"attention_chunk_size", "8192"},
      {"clip_qkv", "8.0"},
      {"qk_layernorm", "true"},
      {"use_qk_norm", "true"},
      {"partial_rotary_factor", "0.5"},
      {"rotary_pct", "0.25"},
      {"rope_interleaved", "true"},
      {"rope_local_base_freq", "10000.0"},
      {"no_rope_layers", "[1]"},
      {"use_mrope", "true"},
      {"original_max_position_embeddings", "4096"},
      {"embedding_multiplier", "12.0"},
      {"residual_multiplier", "0.22"},
      {"logits_scaling", "8.0"},
      {"logit_scale", "0.0625"},
      {"num_experts", "8"},
      {"num_local_experts", "8"},
      {"n_routed_experts", "64"},
      {"num_nextn_predict_layers", "1"},
      {"pretraining_tp", "2"},
  };
  for (const auto& [key, value] : switches)
    list.push_back({std::string("Switch_") + key,
                    "llama",
                    std::string("{\"") + key + "\":" + value + "}",
                    {key}});
  return list;
}

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) { return out << refusal.name; }

class HfConfigRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(HfConfigRefusal, NamesTheKey) {
  const Refusal& refusal = GetParam();
  const std::string text = config_text(refusal.model_type, refusal.extra);
  for (const std::string& part : refusal.says)
    expect_user_error([&] { parse_hf_config(text, "dir/config.json"); }, {part, "dir/config.json"});
}

INSTANTIATE_TEST_SUITE_P(Table, HfConfigRefusal, testing::ValuesIn(refusals()),
                         [](const auto& each) { return each.param.name; });

TEST(HfConfig, SwitchesThatAreOffAreAccepted) {
  EXPECT_NO_THROW(model_of("llama", R"({"quantization_config":null,"pretraining_tp":1,
      "partial_rotary_factor":1.0,"num_experts":0,"auto_map":{},"pruned_heads":{},
      "is_causal":true,"use_mrope":false,"architectures":["LlamaForCausalLM"],
      "is_encoder_decoder":false,"sliding_window":null,"chunk_size_feed_forward":0})"));
  EXPECT_NO_THROW(model_of("gpt2", R"({"architectures":["GPT2LMHeadModel"],
      "task_specific_params":{"text-generation":{"do_sample":true}},"n_ctx":64})"));
  EXPECT_NO_THROW(model_of("gpt2", R"({"attention_bias":true,"mlp_bias":true})"));
  EXPECT_NO_THROW(model_of("llama", R"({"scale_attn_weights":true,
      "scale_attn_by_inverse_layer_idx":false,"use_sliding_window":false})"));
  EXPECT_EQ(model_of("mistral", R"({"sliding_window":5,"use_sliding_window":true,
      "max_window_layers":0})")
                .windows,
            (std::vector<Index>{5, 5, 5}));
  EXPECT_NO_THROW(model_of("mistral", R"({"sliding_window":null,"use_sliding_window":false})"));
}

TEST(HfConfig, KeysOfAnotherModelTypeAreNotedWhenTheyAreNotRefused) {
  const std::pair<const char*, const char*> cases[] = {{"llama", "max_window_layers"},
                                                       {"llama", "n_ctx"},
                                                       {"gpt2", "max_window_layers"},
                                                       {"qwen2", "summary_type"}};
  for (const auto& [type, key] : cases) {
    const auto notes =
        parse_hf_config(config_text(type, std::string("{\"") + key + "\":3}"), "c").notes;
    ASSERT_EQ(notes.size(), 1U) << type << ' ' << key;
    EXPECT_NE(notes[0].find(key), std::string::npos) << notes[0];
  }
  EXPECT_TRUE(
      parse_hf_config(config_text("gpt2", R"({"n_ctx":3,"summary_type":"x"})"), "c").notes.empty());
}

TEST(HfConfig, NotesDropoutAndUnknownKeys) {
  const auto notes = [](std::string_view type, std::string_view extra) {
    return parse_hf_config(config_text(type, extra), "config.json").notes;
  };
  EXPECT_TRUE(notes("llama", R"({"attention_dropout":0.0,"use_cache":true,"eos_token_id":[1,2],
      "transformers_version":"5.0.0","bos_token_id":1,"torch_dtype":"bfloat16"})")
                  .empty());
  const auto dropout = notes("llama", R"({"attention_dropout":0.1})");
  ASSERT_EQ(dropout.size(), 1U);
  EXPECT_NE(dropout[0].find("attention_dropout is 0.1"), std::string::npos) << dropout[0];
  const auto unknown = notes("qwen2", R"({"mystery":{"a":1}})");
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_NE(unknown[0].find("'mystery'"), std::string::npos);
  // gpt2's class drops out when the file is silent.
  const auto silent = parse_hf_config(
      R"({"model_type":"gpt2","vocab_size":5,"n_embd":8,"n_layer":1,"n_head":2})", "config.json");
  EXPECT_EQ(silent.notes.size(), 3U);
}

TEST(HfConfig, NotAConfigIsRefused) {
  for (const char* text : {"", "[]", "3", "{", "{\"model_type\":\"llama\"}"})
    expect_user_error([&] { parse_hf_config(text, "dir/config.json"); }, {"dir/config.json"});
}

TEST(HfConfigWrite, EveryPresetReadsBack) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    const std::string text = make_hf_config(config, DType::bf16, {256, 257});
    const HfConfig read = parse_hf_config(text, name);
    EXPECT_EQ(read.model, config) << name;
    EXPECT_TRUE(read.notes.empty()) << name << ": " << read.notes.front();
  }
}

TEST(HfConfigWrite, EverySwitchReadsBack) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama", R"({"attention_bias":true,"mlp_bias":true,"tie_word_embeddings":true})"},
      {"llama", R"({"rope_scaling":{"type":"linear","factor":2.5}})"},
      {"llama", R"({"rope_theta":5e5,"rope_scaling":{"factor":8.0,"low_freq_factor":1.5,
          "high_freq_factor":4.0,"original_max_position_embeddings":32,"rope_type":"llama3"}})"},
      {"qwen2", R"({"rope_scaling":{"type":"yarn","factor":4.0,"beta_fast":16,"beta_slow":2,
          "original_max_position_embeddings":16,"mscale":1.5,"mscale_all_dim":0.5,
          "truncate":false,"attention_factor":1.25}})"},
      {"qwen3", R"({"attention_bias":true,"use_sliding_window":true,"sliding_window":7,
          "layer_types":["sliding_attention","full_attention","sliding_attention"]})"},
      {"qwen2", R"({"use_sliding_window":true,"sliding_window":7,"max_window_layers":1})"},
      {"mistral", R"({"sliding_window":null,"initializer_range":0.01})"},
      {"gpt2", R"({"n_inner":50,"tie_word_embeddings":false,"scale_attn_weights":false,
          "scale_attn_by_inverse_layer_idx":true})"},
  };
  for (const auto& [type, extra] : cases) {
    const ModelConfig config = model_of(type, extra);
    const std::string text = make_hf_config(config, DType::f32, {});
    EXPECT_EQ(parse_hf_config(text, "x").model, config) << text;
  }
}

TEST(HfConfigWrite, RefusesWhatTheClassCannotSay) {
  ModelConfig config = model_of("mistral");
  config.qkv_bias = true;
  expect_user_error([&] { make_hf_config(config, DType::f32, {}); }, {"mistral"});
  config.model_type = "mine";
  expect_user_error([&] { make_hf_config(config, DType::f32, {}); }, {"mine"});
}

TEST(HfConfigWrite, RewritingKeepsEverythingButTheType) {
  EXPECT_EQ(to_text(parse_json(
                rewrite_hf_config(R"({"z":[1,{"y":null}],"torch_dtype":"float16","eps":1e-06,
                    "dtype":"float16","quantization_config":null,"theta":10000.0,"n":3})",
                                  "x", DType::bf16),
                "x")),
            R"({"z":[1,{"y":null}],"torch_dtype":"bfloat16","eps":1e-06,"dtype":"bfloat16",)"
            R"("theta":10000.0,"n":3})");
  EXPECT_EQ(to_text(parse_json(rewrite_hf_config(R"({"a":1})", "x", DType::f32), "x")),
            R"({"a":1,"torch_dtype":"float32"})");
}

}  // namespace
}  // namespace megatrain::io
