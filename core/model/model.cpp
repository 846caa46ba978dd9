#include "core/model/model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace megatrain {

namespace {

/// How a family spells the names of its tensors, and starts them.
struct Family {
  std::string_view root, layers, token_table, position_table;
  std::string_view input_norm, q, k, v, qkv, attention_output, q_norm, k_norm;
  std::string_view middle_norm, gate, up, down, final_norm;
  /// The two products that add to the residual stream start smaller, so that the stream's variance
  /// does not grow with depth (Radford et al. 2019, section 2.3).
  bool scaled_residual_init = false;
};

constexpr Family kLlama{
    .root = "model.",
    .layers = "layers",
    .token_table = "embed_tokens",
    .position_table = "embed_positions",
    .input_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .qkv = "self_attn.qkv_proj",
    .attention_output = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .middle_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .final_norm = "norm",
};

constexpr Family kGpt2{
    .root = "transformer.",
    .layers = "h",
    .token_table = "wte",
    .position_table = "wpe",
    .input_norm = "ln_1",
    .q = "attn.q_attn",
    .k = "attn.k_attn",
    .v = "attn.v_attn",
    .qkv = "attn.c_attn",
    .attention_output = "attn.c_proj",
    .q_norm = "attn.q_norm",
    .k_norm = "attn.k_norm",
    .middle_norm = "ln_2",
    .gate = "mlp.gate",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .final_norm = "ln_f",
    .scaled_residual_init = true,
};

/// Lays the tensors of one unit into its slab, in the order of the calls.
class UnitBuilder {
 public:
  UnitBuilder(const ModelConfig& config, UnitKind kind, Index layer, std::string prefix)
      : config_(config), prefix_(std::move(prefix)) {
    unit_.kind = kind;
    unit_.layer = layer;
  }

  /// A table or any matrix that is stored as it is used.
  ParamDesc& matrix(ParamRole role, std::string_view name, Index rows, Index columns) {
    return add({.name = fmt::format("{}{}.weight", prefix_, name),
                .shape = {rows, columns},
                .init = Init::normal,
                .init_std = config_.initializer_range,
                .decay = true,
                .role = role});
  }
  ParamDesc& linear(ParamRole role, std::string_view name, Index in, Index out) {
    return config_.weights_in_out ? matrix(role, name, in, out) : matrix(role, name, out, in);
  }
  void bias(ParamRole role, std::string_view name, Index width) {
    add({.name = fmt::format("{}{}.bias", prefix_, name),
         .shape = {width},
         .init = Init::zeros,
         .decay = false,
         .role = role});
  }
  void norm_weight(ParamRole role, std::string_view name, Index width) {
    add({.name = fmt::format("{}{}.weight", prefix_, name),
         .shape = {width},
         .init = Init::ones,
         .decay = false,
         .role = role});
  }
  void norm(ParamRole weight, ParamRole bias_role, std::string_view name) {
    norm_weight(weight, name, config_.hidden);
    if (config_.norm == ops::NormKind::layer) bias(bias_role, name, config_.hidden);
  }

  Unit take() { return std::move(unit_); }

 private:
  ParamDesc& add(ParamDesc param) {
    param.offset = unit_.slab_elements;
    unit_.slab_elements += param.padded_elements();
    return unit_.params.emplace_back(std::move(param));
  }

  const ModelConfig& config_;
  std::string prefix_;
  Unit unit_;
};

Unit embedding_unit(const ModelConfig& config, const Family& names) {
  UnitBuilder builder(config, UnitKind::embedding, -1, std::string(names.root));
  ParamDesc& table =
      builder.matrix(ParamRole::token_table, names.token_table, config.vocabulary, config.hidden);
  if (config.tied_embeddings) table.aliases.emplace_back("lm_head.weight");
  if (config.learned_positions)
    builder.matrix(ParamRole::position_table, names.position_table, config.max_positions,
                   config.hidden);
  return builder.take();
}

void add_attention(UnitBuilder& builder, const ModelConfig& config, const Family& names) {
  const Index query_width = config.heads * config.head_dim;
  const Index kv_width = config.kv_heads * config.head_dim;
  // Matrices first and side by side, then biases: one product and one sum where sizes allow.
  if (config.fused_qkv) {
    builder.linear(ParamRole::qkv, names.qkv, config.hidden, config.qkv_width());
    if (config.qkv_bias) builder.bias(ParamRole::qkv_bias, names.qkv, config.qkv_width());
  } else {
    builder.linear(ParamRole::q, names.q, config.hidden, query_width);
    builder.linear(ParamRole::k, names.k, config.hidden, kv_width);
    builder.linear(ParamRole::v, names.v, config.hidden, kv_width);
    if (config.qkv_bias) {
      builder.bias(ParamRole::q_bias, names.q, query_width);
      builder.bias(ParamRole::k_bias, names.k, kv_width);
      builder.bias(ParamRole::v_bias, names.v, kv_width);
    }
  }
  if (config.qk_norm) {
    builder.norm_weight(ParamRole::q_norm, names.q_norm, config.head_dim);
    builder.norm_weight(ParamRole::k_norm, names.k_norm, config.head_dim);
  }
  builder.linear(ParamRole::attention_output, names.attention_output, query_width, config.hidden);
  if (config.output_bias)
    builder.bias(ParamRole::attention_output_bias, names.attention_output, config.hidden);
}

void add_mlp(UnitBuilder& builder, const ModelConfig& config, const Family& names) {
  const bool gated = config.mlp == MlpKind::swiglu;
  if (gated) builder.linear(ParamRole::gate, names.gate, config.hidden, config.intermediate);
  builder.linear(ParamRole::up, names.up, config.hidden, config.intermediate);
  if (config.mlp_bias) {
    if (gated) builder.bias(ParamRole::gate_bias, names.gate, config.intermediate);
    builder.bias(ParamRole::up_bias, names.up, config.intermediate);
  }
  builder.linear(ParamRole::down, names.down, config.intermediate, config.hidden);
  if (config.mlp_bias) builder.bias(ParamRole::down_bias, names.down, config.hidden);
}

Unit block_unit(const ModelConfig& config, const Family& names, Index layer) {
  UnitBuilder builder(config, UnitKind::block, layer,
                      fmt::format("{}{}.{}.", names.root, names.layers, layer));
  builder.norm(ParamRole::input_norm, ParamRole::input_norm_bias, names.input_norm);
  add_attention(builder, config, names);
  builder.norm(ParamRole::middle_norm, ParamRole::middle_norm_bias, names.middle_norm);
  add_mlp(builder, config, names);
  Unit unit = builder.take();
  if (names.scaled_residual_init) {
    for (ParamDesc& param : unit.params)
      if (param.role == ParamRole::attention_output || param.role == ParamRole::down)
        param.init_std /= std::sqrt(2.0 * double(config.layers));
  }
  return unit;
}

Unit head_unit_of(const ModelConfig& config, const Family& names) {
  UnitBuilder builder(config, UnitKind::head, -1, "");
  builder.norm(ParamRole::final_norm, ParamRole::final_norm_bias,
               fmt::format("{}{}", names.root, names.final_norm));
  if (!config.tied_embeddings)
    builder.matrix(ParamRole::lm_head, "lm_head", config.vocabulary, config.hidden);
  return builder.take();
}

}  // namespace

Index ParamDesc::elements() const {
  Index product = 1;
  for (const Index extent : shape) product *= extent;
  return product;
}

std::string Unit::name() const {
  switch (kind) {
    case UnitKind::embedding:
      return "embedding";
    case UnitKind::block:
      return fmt::format("block {}", layer);
    case UnitKind::head:
      break;
  }
  return "head";
}

const ParamDesc* Unit::find(ParamRole role) const {
  const auto found = std::ranges::find(params, role, &ParamDesc::role);
  return found == params.end() ? nullptr : &*found;
}

Model::Model(ModelConfig config) : config_(std::move(config)) {
  validate(config_);
  const Family& names = config_.model_type == "gpt2" ? kGpt2 : kLlama;
  units_.push_back(embedding_unit(config_, names));
  for (Index layer = 0; layer < config_.layers; ++layer)
    units_.push_back(block_unit(config_, names, layer));
  units_.push_back(head_unit_of(config_, names));
}

Index Model::max_block_elements() const {
  Index most = 0;
  for (const Unit& unit : units_)
    if (unit.kind == UnitKind::block) most = std::max(most, unit.slab_elements);
  return most;
}

Index Model::parameter_count() const {
  Index count = 0;
  for (const Unit& unit : units_)
    for (const ParamDesc& param : unit.params) count += param.elements();
  return count;
}

Index Model::multiplying_parameters() const {
  Index count = 0;
  for (const Unit& unit : units_) {
    for (const ParamDesc& param : unit.params) {
      const bool only_looked_up =
          param.role == ParamRole::position_table ||
          (param.role == ParamRole::token_table && !config_.tied_embeddings);
      if (param.shape.size() == 2 && !only_looked_up) count += param.elements();
    }
  }
  return count;
}

double model_flops_per_token(const Model& model, Index sequence) {
  const ModelConfig& config = model.config();
  return 6.0 * double(model.multiplying_parameters()) +
         6.0 * double(config.layers) * double(config.heads * config.head_dim) * double(sequence);
}

}  // namespace megatrain
