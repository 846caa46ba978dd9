#include "core/model/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// Each part projects to its own heads and MLP columns, and back from them; the rows of the
/// vocabulary are divided; what works on the whole hidden width is on every part.
ShardSpec shard_spec(const ModelConfig& config, ParamRole role) {
  using enum ParamRole;
  ShardSpec output{.dimension = config.weights_in_out ? 1 : 0};
  ShardSpec input{.dimension = config.weights_in_out ? 0 : 1};
  ShardSpec rows{.dimension = 0};
  std::vector<Index> q_k_v{config.heads * config.head_dim, config.kv_heads * config.head_dim,
                           config.kv_heads * config.head_dim};
  switch (role) {
    case token_table:
    case lm_head:
    case q_bias:
    case k_bias:
    case v_bias:
    case gate_bias:
    case up_bias:
      return rows;
    case qkv:
      return {.dimension = output.dimension, .groups = q_k_v};
    case qkv_bias:
      return {.dimension = 0, .groups = q_k_v};
    case q:
    case k:
    case v:
    case gate:
    case up:
      return output;
    case attention_output:
    case down:
      return input;
    case q_norm:
    case k_norm:
      return {.sum_gradient = true};
    case position_table:
    case input_norm:
    case input_norm_bias:
    case attention_output_bias:
    case middle_norm:
    case middle_norm_bias:
    case down_bias:
    case final_norm:
    case final_norm_bias:
      break;
  }
  return {};
}

/// Lays the tensors of one unit into its slab, in the order of the calls, which name whole shapes.
class UnitBuilder {
 public:
  UnitBuilder(const ModelConfig& config, const Partition& partition, UnitKind kind, Index layer,
              std::string prefix)
      : config_(config), partition_(partition), prefix_(std::move(prefix)) {
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
    param.shard = shard_spec(config_, param.role);
    param.partition = partition_;
    param.whole_shape = param.shape;
    if (param.shard.divided()) {
      Index& extent = param.shape[static_cast<std::size_t>(param.shard.dimension)];
      if (param.shard.groups.empty()) param.shard.groups = {extent};
      extent = 0;
      for (const Index group : param.shard.groups) extent += ceil_div(group, partition_.count);
    }
    param.offset = unit_.slab_elements;
    unit_.slab_elements += param.padded_elements();
    return unit_.params.emplace_back(std::move(param));
  }

  const ModelConfig& config_;
  const Partition& partition_;
  std::string prefix_;
  Unit unit_;
};

Unit embedding_unit(const ModelConfig& config, const Partition& partition, const Family& names) {
  UnitBuilder builder(config, partition, UnitKind::embedding, -1, std::string(names.root));
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

Unit block_unit(const ModelConfig& config, const Partition& partition, const Family& names,
                Index layer) {
  UnitBuilder builder(config, partition, UnitKind::block, layer,
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

Unit head_unit_of(const ModelConfig& config, const Partition& partition, const Family& names) {
  UnitBuilder builder(config, partition, UnitKind::head, -1, "");
  builder.norm(ParamRole::final_norm, ParamRole::final_norm_bias,
               fmt::format("{}{}", names.root, names.final_norm));
  if (!config.tied_embeddings)
    builder.matrix(ParamRole::lm_head, "lm_head", config.vocabulary, config.hidden);
  return builder.take();
}

ModelConfig share_of(ModelConfig config, const Partition& partition) {
  config.heads /= partition.count;
  config.kv_heads /= partition.count;
  config.intermediate /= partition.count;
  config.vocabulary = ceil_div(config.vocabulary, partition.count);
  return config;
}

Index product(std::span<const Index> extents) {
  return std::accumulate(extents.begin(), extents.end(), Index{1}, std::multiplies<>());
}

}  // namespace

Index ParamDesc::elements() const { return product(shape); }
Index ParamDesc::whole_elements() const { return product(whole_shape); }

void ParamDesc::for_each_run(const Partition& of, Index first, Index count,
                             const std::function<void(const PartRun&)>& visit) const {
  if (!shard.divided() || of.count == 1) {
    if (count > 0) visit({first, first, count});
    return;
  }
  // Before, along and behind the dimension that is cut.
  const auto cut = static_cast<std::size_t>(shard.dimension);
  const Index inner = product(std::span(shape).subspan(cut + 1));
  const Index row = shape[cut] * inner;
  const Index whole_row = whole_shape[cut] * inner;
  for (Index element = first, end = first + count; element < end;) {
    Index place = element % row;  // in the row, and from here on in the group that it lies in
    Index whole = element / row * whole_row;
    auto group = shard.groups.begin();
    const auto share = [&] { return ceil_div(*group, of.count) * inner; };
    for (; place >= share(); ++group) {
      place -= share();
      whole += *group * inner;
    }
    const Index in_group = of.index * share() + place;
    const Index length = std::min(share() - place, end - element);
    const Index exists = std::clamp<Index>(*group * inner - in_group, 0, length);
    if (exists > 0) visit({element, whole + in_group, exists});
    element += length;
  }
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

bool Unit::sums_over_parts() const {
  return std::ranges::any_of(params, [](const ParamDesc& param) {
    return param.shard.sum_gradient && param.partition.count > 1;
  });
}

void validate(const ModelConfig& config, const Partition& partition) {
  require(partition.count >= 1 && partition.index >= 0 && partition.index < partition.count,
          "a part of a model is one of its parts");
  const Index divisible = std::gcd(std::gcd(config.heads, config.kv_heads), config.intermediate);
  if (divisible % partition.count == 0) return;
  std::vector<Index> work;
  for (Index parts = 1; parts <= divisible; ++parts)
    if (divisible % parts == 0) work.push_back(parts);
  throw UserError(fmt::format(
      "{} parts do not divide the model's {} heads, {} key/value heads and {} MLP "
      "columns: the number of parts (the tensor axis) can be {}",
      partition.count, config.heads, config.kv_heads, config.intermediate, fmt::join(work, ", ")));
}

Model::Model(ModelConfig config, const Partition& partition)
    : config_(std::move(config)), partition_(partition) {
  validate(config_);
  validate(config_, partition_);
  part_config_ = share_of(config_, partition_);
  const Family& names = config_.model_type == "gpt2" ? kGpt2 : kLlama;
  units_.push_back(embedding_unit(config_, partition_, names));
  for (Index layer = 0; layer < config_.layers; ++layer)
    units_.push_back(block_unit(config_, partition_, names, layer));
  units_.push_back(head_unit_of(config_, partition_, names));
}

VocabularyPart Model::vocabulary() const {
  const Index first = partition_.index * part_config_.vocabulary;
  return {first, std::clamp<Index>(config_.vocabulary - first, 0, part_config_.vocabulary)};
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

Index Model::whole_parameter_count() const {
  Index count = 0;
  for (const Unit& unit : units_)
    for (const ParamDesc& param : unit.params) count += param.whole_elements();
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
  const ModelConfig& config = model.part_config();
  return 6.0 * double(model.multiplying_parameters()) +
         6.0 * double(config.layers) * double(config.heads * config.head_dim) * double(sequence);
}

}  // namespace megatrain
