/// The table of switch x model type: every cell is a golden case that has the switch, or a refusal
/// that names it. The goldens themselves are compared in golden_engine_test.cpp (five steps) and
/// tests/model/golden_template_test.cpp (every gradient).

#include <fmt/format.h>

#include <set>
#include <variant>

#include "io/json.h"
#include "tests/golden/golden.h"
#include "tests/io/io_test_support.h"

namespace megatrain::golden {
namespace {

/// The case's config.json says KEY = VALUE (JSON; a dot goes into an object).
struct Says {
  std::string golden, key, value;
};
/// No word in config.json decides it: the case's weights hold this tensor.
struct Holds {
  std::string golden, tensor;
};
/// ... or do not hold it.
struct Lacks {
  std::string golden, tensor;
};
/// The case's config.json does not have KEY: the model type knows no such thing.
struct Silent {
  std::string golden, key;
};
/// config.json with KEY = VALUE is refused, and the message names `names` (empty: the key).
struct Refused {
  std::string key, value, names = {};
};
using Cell = std::variant<Says, Holds, Lacks, Silent, Refused>;

constexpr const char* kModelTypes[] = {"llama", "mistral", "qwen2", "qwen3", "gpt2"};

struct Row {
  std::string name;
  Cell cells[std::size(kModelTypes)];
};

Row refused_by_all(const std::string& key, const std::string& value) {
  const Cell cell = Refused{key, value};
  return {fmt::format("{} = {}", key, value), {cell, cell, cell, cell, cell}};
}

/// A rotary type; gpt2 has none.
Row rotary(const std::string& type, const std::string& llama, const std::string& mistral,
           const std::string& qwen2, const std::string& qwen3) {
  const std::string key = "rope_parameters.rope_type";
  const std::string value = '"' + type + '"';
  return {"rope " + type,
          {Says{llama, key, value}, Says{mistral, key, value}, Says{qwen2, key, value},
           Says{qwen3, key, value}, Refused{"rope_parameters", "{\"rope_type\":" + value + "}"}}};
}

/// A rotary type that nothing implements.
Row no_rotary(const std::string& type) {
  const Refused v5{"rope_parameters", fmt::format(R"({{"rope_type":"{}","factor":2}})", type),
                   type};
  return {"rope " + type, {v5, v5, v5, v5, Refused{v5.key, v5.value}}};
}

std::vector<Row> table() {
  const std::string q_bias = "model.layers.0.self_attn.q_proj.bias";
  const std::string o_bias = "model.layers.0.self_attn.o_proj.bias";
  const std::string down_bias = "model.layers.0.mlp.down_proj.bias";
  const std::string q_norm = "model.layers.0.self_attn.q_norm.weight";
  const std::string gpt2 = "transformer.h.0.";
  return {
      // --- biases
      {"q, k, v biases",
       {Says{"llama_bias_attention", "attention_bias", "true"}, Refused{"attention_bias", "true"},
        Holds{"qwen2", q_bias}, Says{"qwen3_bias_tied", "attention_bias", "true"},
        Holds{"gpt2", gpt2 + "attn.c_attn.bias"}}},
      {"no q, k, v biases",
       {Says{"llama", "attention_bias", "false"}, Lacks{"mistral", q_bias},
        Refused{"attention_bias", "false"}, Says{"qwen3", "attention_bias", "false"},
        Refused{"attention_bias", "false"}}},
      {"o bias",
       {Holds{"llama_bias_attention", o_bias}, Lacks{"mistral", o_bias}, Lacks{"qwen2", o_bias},
        Holds{"qwen3_bias_tied", o_bias}, Holds{"gpt2", gpt2 + "attn.c_proj.bias"}}},
      {"MLP biases",
       {Says{"llama_bias_tied", "mlp_bias", "true"}, Refused{"mlp_bias", "true"},
        Refused{"mlp_bias", "true"}, Refused{"mlp_bias", "true"},
        Holds{"gpt2", gpt2 + "mlp.c_proj.bias"}}},
      {"no MLP biases",
       {Says{"llama", "mlp_bias", "false"}, Lacks{"mistral", down_bias}, Lacks{"qwen2", down_bias},
        Lacks{"qwen3", down_bias}, Refused{"mlp_bias", "false"}}},
      // --- norms of q and k
      {"qk-norm",
       {Refused{"use_qk_norm", "true"}, Refused{"use_qk_norm", "true"},
        Refused{"use_qk_norm", "true"}, Holds{"qwen3", q_norm}, Refused{"use_qk_norm", "true"}}},
      // --- heads (4 of them; gpt2 3)
      {"grouped queries",
       {Says{"llama", "num_key_value_heads", "2"}, Says{"mistral", "num_key_value_heads", "2"},
        Says{"qwen2", "num_key_value_heads", "2"}, Says{"qwen3", "num_key_value_heads", "2"},
        Refused{"num_key_value_heads", "1"}}},
      {"one key head",
       {Says{"llama_mqa", "num_key_value_heads", "1"},
        Says{"mistral_linear_mqa_tied", "num_key_value_heads", "1"},
        Says{"qwen2_llama3_mqa", "num_key_value_heads", "1"},
        Says{"qwen3_llama3_mqa", "num_key_value_heads", "1"}, Refused{"num_key_value_heads", "1"}}},
      {"as many key heads",
       {Says{"llama_mha", "num_key_value_heads", "4"},
        Says{"mistral_llama3_mha_window", "num_key_value_heads", "4"},
        Says{"qwen2_linear_mha_head", "num_key_value_heads", "4"},
        Says{"qwen3_linear_mha", "num_key_value_heads", "4"}, Says{"gpt2", "n_head", "3"}}},
      {"explicit head_dim",
       {Says{"llama", "head_dim", "6"}, Says{"mistral", "head_dim", "6"},
        Says{"qwen2_linear_mha_head", "head_dim", "10"}, Says{"qwen3", "head_dim", "10"},
        Refused{"head_dim", "10"}}},
      // --- tied embeddings
      {"tied",
       {Says{"llama_bias_tied", "tie_word_embeddings", "true"},
        Says{"mistral_linear_mqa_tied", "tie_word_embeddings", "true"},
        Says{"qwen2_tied_window", "tie_word_embeddings", "true"},
        Says{"qwen3_bias_tied", "tie_word_embeddings", "true"},
        Says{"gpt2", "tie_word_embeddings", "true"}}},
      {"untied",
       {Says{"llama", "tie_word_embeddings", "false"},
        Says{"mistral", "tie_word_embeddings", "false"},
        Says{"qwen2", "tie_word_embeddings", "false"},
        Says{"qwen3", "tie_word_embeddings", "false"},
        Says{"gpt2_unscaled_untied", "tie_word_embeddings", "false"}}},
      // --- positions
      rotary("default", "llama", "mistral", "qwen2", "qwen3"),
      rotary("linear", "llama_linear", "mistral_linear_mqa_tied", "qwen2_linear_mha_head",
             "qwen3_linear_mha"),
      rotary("llama3", "llama_llama3", "mistral_llama3_mha_window", "qwen2_llama3_mqa",
             "qwen3_llama3_mqa"),
      rotary("yarn", "llama_yarn", "mistral_yarn", "qwen2_yarn", "qwen3_yarn"),
      no_rotary("dynamic"),
      no_rotary("longrope"),
      no_rotary("mrope"),
      refused_by_all("partial_rotary_factor", "0.5"),
      // --- sliding windows
      {"sliding window",
       {Refused{"sliding_window", "5"}, Says{"mistral_window", "sliding_window", "5"},
        Says{"qwen2_tied_window", "sliding_window", "4"},
        Says{"qwen3_window", "sliding_window", "6"}, Refused{"sliding_window", "5"}}},
      {"windows of some layers",
       {Refused{"layer_types", R"(["full_attention","sliding_attention"])"},
        Refused{"layer_types", R"(["full_attention","sliding_attention"])"},
        Says{"qwen2_tied_window", "layer_types", R"(["full_attention","sliding_attention"])"},
        Says{"qwen3_window", "layer_types", R"(["full_attention","sliding_attention"])"},
        Refused{"layer_types", R"(["full_attention","sliding_attention"])"}}},
      {"no sliding window",
       {Silent{"llama", "sliding_window"}, Says{"mistral", "sliding_window", "null"},
        Says{"qwen2", "use_sliding_window", "false"}, Says{"qwen3", "use_sliding_window", "false"},
        Silent{"gpt2", "sliding_window"}}},
      // --- MLP
      {"activation",
       {Says{"llama", "hidden_act", "\"silu\""}, Says{"mistral", "hidden_act", "\"silu\""},
        Says{"qwen2", "hidden_act", "\"silu\""}, Says{"qwen3", "hidden_act", "\"silu\""},
        Says{"gpt2", "activation_function", "\"gelu_new\""}}},
      {"another activation",
       {Refused{"hidden_act", "\"gelu\""}, Refused{"hidden_act", "\"gelu\""},
        Refused{"hidden_act", "\"gelu\""}, Refused{"hidden_act", "\"gelu\""},
        Refused{"activation_function", "\"gelu\""}}},
      {"explicit MLP width",
       {Says{"llama", "intermediate_size", "37"}, Says{"mistral", "intermediate_size", "37"},
        Says{"qwen2", "intermediate_size", "37"}, Says{"qwen3", "intermediate_size", "37"},
        Says{"gpt2_unscaled_untied", "n_inner", "50"}}},
      // --- softmax scale and caps
      {"another softmax scale",
       {Refused{"attention_multiplier", "0.5"}, Refused{"attention_multiplier", "0.5"},
        Refused{"attention_multiplier", "0.5"}, Refused{"attention_multiplier", "0.5"},
        Says{"gpt2_inverse_layer", "scale_attn_by_inverse_layer_idx", "true"}}},
      {"no softmax scale",
       {Refused{"query_pre_attn_scalar", "1"}, Refused{"query_pre_attn_scalar", "1"},
        Refused{"query_pre_attn_scalar", "1"}, Refused{"query_pre_attn_scalar", "1"},
        Says{"gpt2_unscaled_untied", "scale_attn_weights", "false"}}},
      {"gpt2's softmax scales",
       {Refused{"scale_attn_weights", "false"}, Refused{"scale_attn_weights", "false"},
        Refused{"scale_attn_by_inverse_layer_idx", "true"},
        Refused{"scale_attn_by_inverse_layer_idx", "true"},
        Says{"gpt2_unscaled_untied", "scale_attn_by_inverse_layer_idx", "false"}}},
      refused_by_all("attn_logit_softcapping", "50.0"),
      refused_by_all("final_logit_softcapping", "30.0"),
      refused_by_all("attention_chunk_size", "64"),
      refused_by_all("clip_qkv", "8.0"),
      // --- other kinds of models and files
      refused_by_all("num_local_experts", "8"),
      refused_by_all("add_cross_attention", "true"),
      refused_by_all("is_encoder_decoder", "true"),
      refused_by_all("text_config", R"({"hidden_size":8})"),
      refused_by_all("quantization_config", R"({"quant_method":"gptq"})"),
      refused_by_all("model_type", "\"mamba\""),
  };
}

std::filesystem::path folder_of(const std::string& golden) {
  return std::filesystem::path(MEGATRAIN_GOLDEN_DATA) / golden;
}

io::JsonValue config_of(const std::string& golden) {
  const auto path = folder_of(golden) / "config.json";
  return io::parse_json(io::get_file(path), path.string());
}

/// Proves one cell of the column of `model_type`. Returns the golden case that it names.
struct Prove {
  std::string model_type;

  std::string operator()(const Says& cell) const {
    check_type(cell.golden);
    const io::JsonValue config = config_of(cell.golden);
    const io::JsonValue* value = &config;
    for (std::size_t begin = 0; value != nullptr && begin < cell.key.size();) {
      const std::size_t dot = std::min(cell.key.find('.', begin), cell.key.size());
      value = value->find(cell.key.substr(begin, dot - begin));
      begin = dot + 1;
    }
    EXPECT_EQ(value == nullptr ? "absent" : io::to_text(*value), cell.value) << cell.key;
    return cell.golden;
  }
  std::string operator()(const Holds& cell) const {
    check_type(cell.golden);
    EXPECT_TRUE(holds(cell.golden, cell.tensor)) << cell.tensor;
    return cell.golden;
  }
  std::string operator()(const Lacks& cell) const {
    check_type(cell.golden);
    EXPECT_FALSE(holds(cell.golden, cell.tensor)) << cell.tensor;
    return cell.golden;
  }
  std::string operator()(const Silent& cell) const {
    check_type(cell.golden);
    EXPECT_EQ(config_of(cell.golden).find(cell.key), nullptr) << cell.key;
    return cell.golden;
  }
  std::string operator()(const Refused& cell) const {
    io::JsonValue config = config_of(model_type);
    EXPECT_NO_THROW(io::parse_hf_config(io::to_text(config), "config.json"));
    auto& members = *config.as<io::JsonValue::Object>();
    std::erase_if(members, [&](const io::JsonMember& member) { return member.name == cell.key; });
    members.push_back({cell.key, io::parse_json(cell.value, "table")});
    io::expect_user_error([&] { io::parse_hf_config(io::to_text(config), "config.json"); },
                          {cell.key, cell.names});
    return {};
  }

 private:
  void check_type(const std::string& golden) const {
    EXPECT_EQ(io::to_text(*config_of(golden).find("model_type")), '"' + model_type + '"');
  }
  static bool holds(const std::string& golden, const std::string& tensor) {
    return io::SafetensorsFile(folder_of(golden) / "model.safetensors").find(tensor) != nullptr;
  }
};

TEST(GoldenCoverage, EverySwitchOfEveryModelTypeHasAGoldenOrARefusal) {
  std::set<std::string> named;
  for (const Row& row : table())
    for (std::size_t column = 0; column < std::size(kModelTypes); ++column) {
      SCOPED_TRACE(row.name + ", " + kModelTypes[column]);
      named.insert(std::visit(Prove{kModelTypes[column]}, row.cells[column]));
    }
  for (const auto& path : folders())
    EXPECT_TRUE(named.contains(path.filename().string())) << path << " is in no cell";
}

TEST(GoldenCoverage, BothSpellingsOfAConfigSayTheSameModel) {
  for (const auto& path : folders()) {
    const auto model = [&](const char* name) {
      return io::parse_hf_config(io::get_file(path / name), name).model;
    };
    EXPECT_EQ(model("config_v4.json"), model("config.json")) << path;
  }
}

}  // namespace
}  // namespace megatrain::golden
