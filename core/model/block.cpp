#include <algorithm>
#include <array>
#include <cmath>

#include "core/model/block_layout.h"
#include "core/model/templates.h"

namespace megatrain {

namespace {

const Unit& block_of(const Model& model, Index unit) {
  const Unit& block = model.unit(unit);
  require(block.kind == UnitKind::block, "a block template on a unit that is none");
  return block;
}

ops::AttentionShape attention_shape(const ModelConfig& config, Index layer, DType type,
                                    MicroBatchShape shape) {
  double scale = config.scale_attention ? 1 / std::sqrt(double(config.head_dim)) : 1.0;
  if (config.scale_by_inverse_layer) scale /= double(layer + 1);
  return {.batch = shape.batch,
          .sequence = shape.sequence,
          .query_heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .window = config.window(layer),
          .scale = static_cast<float>(scale),
          .type = type};
}

Linear qkv_piece(const ModelConfig& config, const Unit& unit) {
  using enum ParamRole;
  using Part = Linear::Part;
  if (config.fused_qkv)
    return {unit, config.hidden, config.weights_in_out, std::array{Part{qkv, qkv_bias}}};
  return {unit, config.hidden, config.weights_in_out,
          std::array{Part{q, q_bias}, Part{k, k_bias}, Part{v, v_bias}}};
}

Linear gate_up_piece(const ModelConfig& config, const Unit& unit) {
  using enum ParamRole;
  using Part = Linear::Part;
  if (config.mlp == MlpKind::gelu)
    return {unit, config.hidden, config.weights_in_out, std::array{Part{up, up_bias}}};
  return {unit, config.hidden, config.weights_in_out,
          std::array{Part{gate, gate_bias}, Part{up, up_bias}}};
}

}  // namespace

/// One call of a block: the steps of its forward pass, each written once and used by forward and
/// recompute alike, so that their bits cannot differ; and the backward of each.
class BlockPass {
 public:
  BlockPass(const Block& block, const ops::Ops& ops, Stream& stream, Keep keep,
            const BlockBuffers& buffers, const PartGroup& parts)
      : block_(block),
        config_(*block.config_),
        buffers_(buffers),
        layout_(config_, block.compute_.type, block.shape_, keep),
        launch_{.ops = ops,
                .stream = stream,
                .type = block.compute_.type,
                .workspace = {.data = buffers.temporary, .bytes = block.temporary_bytes()},
                .parts = parts},
        tokens_(block.shape_.tokens()) {}

  void normalise_input() const {
    block_.input_norm_.forward(launch_, tokens_, buffers_.weights, buffers_.input,
                               at(Intermediate::input_normed), input_statistics());
  }

  void project_qkv() const {
    block_.qkv_.forward(launch_, tokens_, buffers_.weights, at(Intermediate::input_normed),
                        at(Intermediate::qkv));
    if (!config_.qk_norm) rotate(at(Intermediate::qkv), config_.qkv_width(), false);
  }

  /// The qk-norm, for models that have one. It reads qkv as projected and leaves it alone.
  void normalise_heads() const {
    if (!config_.qk_norm) return;
    std::byte* qkv = at(Intermediate::qkv);
    std::byte* qk = at(Intermediate::qk);
    block_.q_norm_->forward(launch_, tokens_ * config_.heads, buffers_.weights, qkv,
                            head_rows(config_.heads, config_.qkv_width()), qk,
                            head_rows(config_.heads, qk_width()),
                            {.rstd = floats(Intermediate::q_rstd)});
    block_.k_norm_->forward(
        launch_, tokens_ * config_.kv_heads, buffers_.weights, columns(qkv, query_width()),
        head_rows(config_.kv_heads, config_.qkv_width()), columns(qk, query_width()),
        head_rows(config_.kv_heads, qk_width()), {.rstd = floats(Intermediate::k_rstd)});
    rotate(qk, qk_width(), false);
  }

  void attend() const {
    const Operands in = attention_operands();
    launch_.ops.run(launch_.stream, ops::AttentionForward{.shape = block_.attention_,
                                                          .backend = block_.compute_.attention,
                                                          .q = in.q,
                                                          .q_stride = in.qk_stride,
                                                          .k = in.k,
                                                          .k_stride = in.qk_stride,
                                                          .v = in.v,
                                                          .v_stride = config_.qkv_width(),
                                                          .o = at(Intermediate::attended),
                                                          .o_stride = query_width(),
                                                          .lse = floats(Intermediate::lse),
                                                          .workspace = launch_.workspace});
  }

  void project_attended() const {
    block_.attention_output_.forward(launch_, tokens_, buffers_.weights, at(Intermediate::attended),
                                     at(Intermediate::middle), buffers_.input);
  }

  void normalise_middle() const {
    block_.middle_norm_.forward(launch_, tokens_, buffers_.weights, at(Intermediate::middle),
                                at(Intermediate::middle_normed), middle_statistics());
  }

  void project_gate_up() const {
    block_.gate_up_.forward(launch_, tokens_, buffers_.weights, at(Intermediate::middle_normed),
                            at(Intermediate::gate_up));
  }

  void activate() const {
    std::byte* gate = at(Intermediate::gate_up);
    std::byte* y = at(Intermediate::activated);
    if (config_.mlp == MlpKind::swiglu) {
      launch_.ops.run(launch_.stream, ops::SwigluForward{.rows = tokens_,
                                                         .columns = config_.intermediate,
                                                         .type = launch_.type,
                                                         .gate = gate,
                                                         .up = columns(gate, config_.intermediate),
                                                         .in_stride = 2 * config_.intermediate,
                                                         .y = y});
    } else {
      launch_.ops.run(
          launch_.stream,
          ops::GeluForward{
              .count = tokens_ * config_.intermediate, .type = launch_.type, .x = gate, .y = y});
    }
  }

  void project_down() const {
    block_.down_.forward(launch_, tokens_, buffers_.weights, at(Intermediate::activated),
                         buffers_.output, at(Intermediate::middle));
  }

  /// gradient_stream: d(output) to d(middle).
  void backward_mlp() const {
    void* stream = buffers_.gradient_stream;
    std::byte* activated = at(Intermediate::activated);
    std::byte* gate = at(Intermediate::gate_up);
    std::byte* normed = at(Intermediate::middle_normed);

    weight_gradient(block_.down_, stream, activated);
    block_.down_.backward_input(launch_, tokens_, buffers_.weights, stream, activated);
    if (config_.mlp == MlpKind::swiglu) {
      launch_.ops.run(launch_.stream, ops::SwigluBackward{.rows = tokens_,
                                                          .columns = config_.intermediate,
                                                          .type = launch_.type,
                                                          .gate = gate,
                                                          .up = columns(gate, config_.intermediate),
                                                          .in_stride = 2 * config_.intermediate,
                                                          .dy = activated});
    } else {
      launch_.ops.run(launch_.stream, ops::GeluBackward{.count = tokens_ * config_.intermediate,
                                                        .type = launch_.type,
                                                        .x = gate,
                                                        .dy = activated});
    }
    weight_gradient(block_.gate_up_, gate, normed);
    block_.gate_up_.backward_input(launch_, tokens_, buffers_.weights, gate, normed);
    block_.middle_norm_.backward(launch_, tokens_, buffers_.weights, at(Intermediate::middle),
                                 middle_statistics(), normed, stream, stream, buffers_.gradient,
                                 buffers_.accumulate);
  }

  /// gradient_stream: d(middle) to d(input).
  void backward_attention() const {
    void* stream = buffers_.gradient_stream;
    std::byte* normed = at(Intermediate::input_normed);
    std::byte* d_qkv = layout_.qkv_gradient(buffers_);

    weight_gradient(block_.attention_output_, stream, at(Intermediate::attended));
    block_.attention_output_.backward_input(launch_, tokens_, buffers_.weights, stream,
                                            layout_.attended_gradient(buffers_));
    backward_attend(d_qkv);
    rotate(d_qkv, config_.qkv_width(), true);
    if (config_.qk_norm) backward_normalise_heads(d_qkv);
    weight_gradient(block_.qkv_, d_qkv, normed);
    block_.qkv_.backward_input(launch_, tokens_, buffers_.weights, d_qkv, normed);
    block_.input_norm_.backward(launch_, tokens_, buffers_.weights, buffers_.input,
                                input_statistics(), normed, stream, stream, buffers_.gradient,
                                buffers_.accumulate);
  }

 private:
  struct Operands {
    std::byte *q, *k, *v;
    Index qk_stride;
  };

  [[nodiscard]] std::byte* at(Intermediate what) const { return layout_.locate(what, buffers_); }
  [[nodiscard]] float* floats(Intermediate what) const {
    return reinterpret_cast<float*>(at(what));
  }
  [[nodiscard]] std::byte* columns(std::byte* base, Index count) const {
    return base + count * size_of(launch_.type);
  }
  [[nodiscard]] Index query_width() const { return config_.heads * config_.head_dim; }
  [[nodiscard]] Index qk_width() const {
    return (config_.heads + config_.kv_heads) * config_.head_dim;
  }
  /// Heads of all tokens as rows, `stride` elements from token to token.
  [[nodiscard]] ops::RowMap head_rows(Index heads, Index stride) const {
    return {.inner = heads, .outer_stride = stride, .inner_stride = config_.head_dim};
  }
  [[nodiscard]] Norm::Statistics input_statistics() const {
    return statistics(Intermediate::input_rstd, Intermediate::input_mean);
  }
  [[nodiscard]] Norm::Statistics middle_statistics() const {
    return statistics(Intermediate::middle_rstd, Intermediate::middle_mean);
  }
  [[nodiscard]] Norm::Statistics statistics(Intermediate rstd, Intermediate mean) const {
    return {.rstd = floats(rstd),
            .mean = config_.norm == ops::NormKind::layer ? floats(mean) : nullptr};
  }

  /// Where attention reads: after a qk-norm q and k have a buffer of their own.
  [[nodiscard]] Operands attention_operands() const {
    std::byte* qkv = at(Intermediate::qkv);
    std::byte* qk = config_.qk_norm ? at(Intermediate::qk) : qkv;
    return {.q = qk,
            .k = columns(qk, query_width()),
            .v = columns(qkv, qk_width()),
            .qk_stride = config_.qk_norm ? qk_width() : config_.qkv_width()};
  }

  /// Rope on the q and k heads of packed rows (they follow one another).
  void rotate(std::byte* x, Index stride, bool inverse) const {
    if (config_.rope.kind == RopeKind::none) return;
    launch_.ops.run(launch_.stream, ops::Rope{.tokens = tokens_,
                                              .sequence = block_.shape_.sequence,
                                              .heads = config_.heads + config_.kv_heads,
                                              .head_dim = config_.head_dim,
                                              .token_stride = stride,
                                              .type = launch_.type,
                                              .x = x,
                                              .cosine = buffers_.rope_cosine,
                                              .sine = buffers_.rope_sine,
                                              .inverse = inverse});
  }

  void weight_gradient(const Linear& linear, const void* dy, const void* x) const {
    linear.backward_weight(launch_, tokens_, dy, x, buffers_.gradient, buffers_.accumulate);
  }

  void backward_attend(std::byte* d_qkv) const {
    const Operands in = attention_operands();
    const Index stride = config_.qkv_width();
    launch_.ops.run(launch_.stream,
                    ops::AttentionBackward{.shape = block_.attention_,
                                           .backend = block_.compute_.attention,
                                           .q = in.q,
                                           .q_stride = in.qk_stride,
                                           .k = in.k,
                                           .k_stride = in.qk_stride,
                                           .v = in.v,
                                           .v_stride = stride,
                                           .o = at(Intermediate::attended),
                                           .o_stride = query_width(),
                                           .d_o = layout_.attended_gradient(buffers_),
                                           .d_o_stride = query_width(),
                                           .lse = floats(Intermediate::lse),
                                           .dq = d_qkv,
                                           .dq_stride = stride,
                                           .dk = columns(d_qkv, query_width()),
                                           .dk_stride = stride,
                                           .dv = columns(d_qkv, qk_width()),
                                           .dv_stride = stride,
                                           .workspace = launch_.workspace});
  }

  void backward_normalise_heads(std::byte* d_qkv) const {
    std::byte* qkv = at(Intermediate::qkv);
    const ops::RowMap q_rows = head_rows(config_.heads, config_.qkv_width());
    const ops::RowMap k_rows = head_rows(config_.kv_heads, config_.qkv_width());
    block_.q_norm_->backward(launch_, tokens_ * config_.heads, buffers_.weights, qkv, q_rows,
                             {.rstd = floats(Intermediate::q_rstd)}, d_qkv, q_rows,
                             buffers_.gradient, buffers_.accumulate);
    block_.k_norm_->backward(launch_, tokens_ * config_.kv_heads, buffers_.weights,
                             columns(qkv, query_width()), k_rows,
                             {.rstd = floats(Intermediate::k_rstd)}, columns(d_qkv, query_width()),
                             k_rows, buffers_.gradient, buffers_.accumulate);
  }

  const Block& block_;
  const ModelConfig& config_;
  const BlockBuffers& buffers_;
  BlockLayout layout_;
  Launch launch_;
  Index tokens_;
};

Block::Block(const Model& model, Index unit, const ComputeConfig& compute, MicroBatchShape shape)
    : config_(&model.part_config()),
      compute_(compute),
      shape_(shape),
      attention_(attention_shape(*config_, block_of(model, unit).layer, compute.type, shape)),
      input_norm_(*config_, model.unit(unit), ParamRole::input_norm, ParamRole::input_norm_bias),
      middle_norm_(*config_, model.unit(unit), ParamRole::middle_norm, ParamRole::middle_norm_bias),
      qkv_(qkv_piece(*config_, model.unit(unit))),
      attention_output_(
          model.unit(unit), config_->heads * config_->head_dim, config_->weights_in_out,
          std::array{Linear::Part{ParamRole::attention_output, ParamRole::attention_output_bias}}),
      gate_up_(gate_up_piece(*config_, model.unit(unit))),
      down_(model.unit(unit), config_->intermediate, config_->weights_in_out,
            std::array{Linear::Part{ParamRole::down, ParamRole::down_bias}}) {
  if (config_->qk_norm) {
    q_norm_.emplace(*config_, model.unit(unit), ParamRole::q_norm);
    k_norm_.emplace(*config_, model.unit(unit), ParamRole::k_norm);
  }
}

Index Block::kept_bytes(Keep keep) const {
  return BlockLayout(*config_, compute_.type, shape_, keep).kept_bytes();
}

Index Block::recomputed_bytes(Keep keep) const {
  return BlockLayout(*config_, compute_.type, shape_, keep).recomputed_bytes();
}

Index Block::temporary_bytes() const {
  const Index tokens = shape_.tokens();
  Index bytes =
      std::max({ops::kGemmWorkspace, ops::norm_backward_workspace(tokens, config_->hidden),
                ops::attention_forward_workspace(attention_, compute_.attention),
                ops::attention_backward_workspace(attention_, compute_.attention)});
  for (const Linear* linear : {&qkv_, &attention_output_, &gate_up_, &down_})
    bytes = std::max(bytes, linear->workspace_bytes(tokens));
  if (config_->qk_norm)
    bytes =
        std::max(bytes, ops::norm_backward_workspace(tokens * config_->heads, config_->head_dim));
  return bytes;
}

void Block::forward(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
                    const PartGroup& parts) const {
  const BlockPass pass(*this, ops, stream, keep, buffers, parts);
  pass.normalise_input();
  pass.project_qkv();
  pass.normalise_heads();
  pass.attend();
  pass.project_attended();
  pass.normalise_middle();
  pass.project_gate_up();
  pass.activate();
  pass.project_down();
}

void Block::recompute(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
                      const PartGroup& parts) const {
  const BlockPass pass(*this, ops, stream, keep, buffers, parts);
  pass.normalise_input();
  if (keep == Keep::boundary) pass.project_qkv();
  pass.normalise_heads();
  if (keep == Keep::boundary) {
    pass.attend();
    pass.project_attended();
  }
  pass.normalise_middle();
  if (keep != Keep::all) pass.project_gate_up();
  pass.activate();
  if (buffers.output != nullptr) pass.project_down();
}

void Block::backward(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
                     const PartGroup& parts) const {
  const BlockPass pass(*this, ops, stream, keep, buffers, parts);
  pass.backward_mlp();
  pass.backward_attention();
}

}  // namespace megatrain
