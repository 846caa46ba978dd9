#pragma once
/// @file
/// Reverse-mode differentiation of matrices in fp64: an operation makes a node that knows how to
/// hand its gradient to its inputs.

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace megatrain::reference {

struct Node {
  Index rows = 0, columns = 0;
  std::vector<double> value, gradient;
  std::function<void()> backward;

  [[nodiscard]] double& v(Index r, Index c) { return value[at(r, c)]; }
  [[nodiscard]] double& g(Index r, Index c) { return gradient[at(r, c)]; }

 private:
  [[nodiscard]] std::size_t at(Index r, Index c) const {
    return static_cast<std::size_t>(r * columns + c);
  }
};

/// What a row of the attention matrix sees, and how heads share.
struct AttentionShape {
  Index batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  double scale = 1;
};

class Tape {
 public:
  Node* leaf(Index rows, Index columns, std::vector<double> values);

  Node* gather(Node* table, std::span<const std::int32_t> rows);
  Node* add(Node* a, Node* b);
  /// x [r, c] + bias [1, c] on every row.
  Node* add_bias(Node* x, Node* bias);
  /// x [r, k] . w [n, k]^T
  Node* times_transposed(Node* x, Node* w);
  /// x [r, k] . w [k, n]
  Node* times(Node* x, Node* w);
  Node* columns(Node* x, Index first, Index count);
  Node* reshape(Node* x, Index rows, Index columns);
  Node* rms_norm(Node* x, Node* weight, double eps);
  Node* layer_norm(Node* x, Node* weight, Node* bias, double eps);
  /// Rotates pairs (i, i + d / 2) of each head; row t has position t % sequence.
  Node* rope(Node* x, Index heads, Index sequence, std::span<const float> cosine,
             std::span<const float> sine);
  Node* attention(Node* q, Node* k, Node* v, const AttentionShape& shape);
  Node* silu_times(Node* gate, Node* up);
  Node* gelu_tanh(Node* x);
  /// Losses [r, 1]; rows with a negative target have none.
  Node* cross_entropy(Node* logits, std::span<const std::int32_t> targets);

  /// Seeds `output` with `seed` everywhere and runs all nodes backwards.
  void backward(Node* output, double seed);

 private:
  Node* make(Index rows, Index columns);
  std::deque<Node> nodes_;
};

}  // namespace megatrain::reference
