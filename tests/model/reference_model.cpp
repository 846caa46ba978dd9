#include "tests/model/reference_model.h"

#include <cmath>

#include <fmt/format.h>

#include "tests/model/tape.h"

namespace megatrain::reference {

namespace {

/// One forward pass on a tape, tensor by tensor in the order of the papers.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const Tensors& weights, const Batch& batch)
      : config_(config), weights_(weights), batch_(batch) {}

  /// Logits [tokens, vocabulary].
  Node* forward() {
    const bool gpt2 = config_.model_type == "gpt2";
    Node* table = parameter(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight",
                            config_.vocabulary, config_.hidden);
    Node* x = tape_.gather(table, batch_.ids);
    if (config_.learned_positions) {
      std::vector<std::int32_t> positions;
      for (Index t = 0; t < batch_.batch * batch_.sequence; ++t)
        positions.push_back(static_cast<std::int32_t>(t % batch_.sequence));
      x = tape_.add(x, tape_.gather(parameter("transformer.wpe.weight", config_.max_positions,
                                              config_.hidden),
                                    positions));
    }
    for (Index layer = 0; layer < config_.layers; ++layer)
      x = gpt2 ? gpt2_block(x, layer) : llama_block(x, layer);
    x = norm(x, gpt2 ? "transformer.ln_f" : "model.norm");
    Node* head = config_.tied_embeddings
                     ? table
                     : parameter("lm_head.weight", config_.vocabulary, config_.hidden);
    return tape_.times_transposed(x, head);
  }

  Result finish(Node* logits, double scale) {
    Node* losses = tape_.cross_entropy(logits, batch_.targets);
    tape_.backward(losses, scale);
    Result result{.logits = logits->value, .losses = losses->value, .gradients = {}};
    for (const auto& [name, node] : parameters_) result.gradients[name] = node->gradient;
    return result;
  }

 private:
  Node* parameter(const std::string& name, Index rows, Index columns) {
    const auto found = weights_.find(name);
    require(found != weights_.end(), fmt::format("the reference has no tensor {}", name));
    return parameters_[name] = tape_.leaf(rows, columns, found->second);
  }

  Node* norm(Node* x, const std::string& name) {
    Node* weight = parameter(name + ".weight", 1, config_.hidden);
    if (config_.norm == ops::NormKind::rms) return tape_.rms_norm(x, weight, config_.norm_eps);
    return tape_.layer_norm(x, weight, parameter(name + ".bias", 1, config_.hidden),
                            config_.norm_eps);
  }

  /// A linear layer as torch.nn.Linear stores it, [out, in].
  Node* linear(Node* x, const std::string& name, Index out, bool bias) {
    Node* y = tape_.times_transposed(x, parameter(name + ".weight", out, x->columns));
    return bias ? tape_.add_bias(y, parameter(name + ".bias", 1, out)) : y;
  }

  /// GPT-2's Conv1D, [in, out] with a bias.
  Node* conv1d(Node* x, const std::string& name, Index out) {
    Node* y = tape_.times(x, parameter(name + ".weight", x->columns, out));
    return tape_.add_bias(y, parameter(name + ".bias", 1, out));
  }

  Node* attend(Node* q, Node* k, Node* v, Index layer) {
    double scale = config_.scale_attention ? 1 / std::sqrt(double(config_.head_dim)) : 1.0;
    if (config_.scale_by_inverse_layer) scale /= double(layer + 1);
    return tape_.attention(q, k, v,
                           {.batch = batch_.batch,
                            .sequence = batch_.sequence,
                            .heads = config_.heads,
                            .kv_heads = config_.kv_heads,
                            .head_dim = config_.head_dim,
                            .window = config_.window(layer),
                            .scale = scale});
  }

  /// q or k: projected, normed head by head where the model does that, rotated.
  Node* rotated(Node* x, const std::string& attention, const std::string& which, Index heads) {
    const Index width = heads * config_.head_dim;
    Node* y = linear(x, attention + which + "_proj", width, config_.qkv_bias);
    if (config_.qk_norm) {
      Node* by_head = tape_.reshape(y, y->rows * heads, config_.head_dim);
      Node* weight = parameter(attention + which + "_norm.weight", 1, config_.head_dim);
      y = tape_.reshape(tape_.rms_norm(by_head, weight, config_.norm_eps), y->rows, width);
    }
    const RopeTables tables = rope_tables(config_, batch_.sequence);
    return tape_.rope(y, heads, batch_.sequence, tables.cosine, tables.sine);
  }

  Node* llama_block(Node* x, Index layer) {
    const std::string root = fmt::format("model.layers.{}.", layer);
    const std::string attention = root + "self_attn.";
    Node* h = norm(x, root + "input_layernorm");
    Node* q = rotated(h, attention, "q", config_.heads);
    Node* k = rotated(h, attention, "k", config_.kv_heads);
    Node* v =
        linear(h, attention + "v_proj", config_.kv_heads * config_.head_dim, config_.qkv_bias);
    Node* o =
        linear(attend(q, k, v, layer), attention + "o_proj", config_.hidden, config_.output_bias);
    x = tape_.add(x, o);
    h = norm(x, root + "post_attention_layernorm");
    Node* gate = linear(h, root + "mlp.gate_proj", config_.intermediate, config_.mlp_bias);
    Node* up = linear(h, root + "mlp.up_proj", config_.intermediate, config_.mlp_bias);
    return tape_.add(x, linear(tape_.silu_times(gate, up), root + "mlp.down_proj", config_.hidden,
                               config_.mlp_bias));
  }

  Node* gpt2_block(Node* x, Index layer) {
    const std::string root = fmt::format("transformer.h.{}.", layer);
    const Index width = config_.heads * config_.head_dim;
    Node* qkv = conv1d(norm(x, root + "ln_1"), root + "attn.c_attn", 3 * width);
    Node* o = attend(tape_.columns(qkv, 0, width), tape_.columns(qkv, width, width),
                     tape_.columns(qkv, 2 * width, width), layer);
    x = tape_.add(x, conv1d(o, root + "attn.c_proj", config_.hidden));
    Node* h = conv1d(norm(x, root + "ln_2"), root + "mlp.c_fc", config_.intermediate);
    return tape_.add(x, conv1d(tape_.gelu_tanh(h), root + "mlp.c_proj", config_.hidden));
  }

  const ModelConfig& config_;
  const Tensors& weights_;
  const Batch& batch_;
  Tape tape_;
  std::map<std::string, Node*> parameters_;
};

}  // namespace

Result run(const ModelConfig& config, const Tensors& weights, const Batch& batch, double scale) {
  Decoder decoder(config, weights, batch);
  Node* logits = decoder.forward();
  return decoder.finish(logits, scale);
}

}  // namespace megatrain::reference
