#include "tests/model/tape.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megatrain::reference {

Node* Tape::make(Index rows, Index columns) {
  Node& node = nodes_.emplace_back();
  node.rows = rows;
  node.columns = columns;
  node.value.resize(static_cast<std::size_t>(rows * columns));
  node.gradient.resize(node.value.size());
  return &node;
}

Node* Tape::leaf(Index rows, Index columns, std::vector<double> values) {
  require(static_cast<Index>(values.size()) == rows * columns, "a leaf of another size");
  Node* y = make(rows, columns);
  y->value = std::move(values);
  return y;
}

void Tape::backward(Node* output, double seed) {
  std::ranges::fill(output->gradient, seed);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
    if (node->backward) node->backward();
}

Node* Tape::gather(Node* table, std::span<const std::int32_t> rows) {
  Node* y = make(static_cast<Index>(rows.size()), table->columns);
  const std::vector<std::int32_t> ids(rows.begin(), rows.end());
  for (Index r = 0; r < y->rows; ++r)
    for (Index c = 0; c < y->columns; ++c)
      y->v(r, c) = table->v(ids[static_cast<std::size_t>(r)], c);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index c = 0; c < y->columns; ++c)
        table->g(ids[static_cast<std::size_t>(r)], c) += y->g(r, c);
  };
  return y;
}

Node* Tape::add(Node* a, Node* b) {
  Node* y = make(a->rows, a->columns);
  for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
  y->backward = [=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i];
      b->gradient[i] += y->gradient[i];
    }
  };
  return y;
}

Node* Tape::add_bias(Node* x, Node* bias) {
  Node* y = make(x->rows, x->columns);
  for (Index r = 0; r < y->rows; ++r)
    for (Index c = 0; c < y->columns; ++c) y->v(r, c) = x->v(r, c) + bias->v(0, c);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index c = 0; c < y->columns; ++c) {
        x->g(r, c) += y->g(r, c);
        bias->g(0, c) += y->g(r, c);
      }
  };
  return y;
}

Node* Tape::times_transposed(Node* x, Node* w) {
  Node* y = make(x->rows, w->rows);
  for (Index r = 0; r < y->rows; ++r)
    for (Index n = 0; n < y->columns; ++n)
      for (Index k = 0; k < x->columns; ++k) y->v(r, n) += x->v(r, k) * w->v(n, k);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index n = 0; n < y->columns; ++n)
        for (Index k = 0; k < x->columns; ++k) {
          x->g(r, k) += y->g(r, n) * w->v(n, k);
          w->g(n, k) += y->g(r, n) * x->v(r, k);
        }
  };
  return y;
}

Node* Tape::times(Node* x, Node* w) {
  Node* y = make(x->rows, w->columns);
  for (Index r = 0; r < y->rows; ++r)
    for (Index k = 0; k < x->columns; ++k)
      for (Index n = 0; n < y->columns; ++n) y->v(r, n) += x->v(r, k) * w->v(k, n);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index k = 0; k < x->columns; ++k)
        for (Index n = 0; n < y->columns; ++n) {
          x->g(r, k) += y->g(r, n) * w->v(k, n);
          w->g(k, n) += y->g(r, n) * x->v(r, k);
        }
  };
  return y;
}

Node* Tape::columns(Node* x, Index first, Index count) {
  Node* y = make(x->rows, count);
  for (Index r = 0; r < y->rows; ++r)
    for (Index c = 0; c < count; ++c) y->v(r, c) = x->v(r, first + c);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index c = 0; c < count; ++c) x->g(r, first + c) += y->g(r, c);
  };
  return y;
}

Node* Tape::reshape(Node* x, Index rows, Index columns) {
  Node* y = make(rows, columns);
  y->value = x->value;
  y->backward = [=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) x->gradient[i] += y->gradient[i];
  };
  return y;
}

Node* Tape::rms_norm(Node* x, Node* weight, double eps) {
  Node* y = make(x->rows, x->columns);
  const auto inverse_rms = [=](Index r) {
    double squares = 0;
    for (Index c = 0; c < x->columns; ++c) squares += x->v(r, c) * x->v(r, c);
    return 1 / std::sqrt(squares / double(x->columns) + eps);
  };
  for (Index r = 0; r < y->rows; ++r)
    for (Index c = 0; c < y->columns; ++c)
      y->v(r, c) = x->v(r, c) * inverse_rms(r) * weight->v(0, c);
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r) {
      const double scale = inverse_rms(r);
      double along = 0;  // of the gradient, along x
      for (Index c = 0; c < y->columns; ++c) along += y->g(r, c) * weight->v(0, c) * x->v(r, c);
      along *= scale * scale / double(x->columns);
      for (Index c = 0; c < y->columns; ++c) {
        x->g(r, c) += scale * (y->g(r, c) * weight->v(0, c) - along * x->v(r, c));
        weight->g(0, c) += y->g(r, c) * x->v(r, c) * scale;
      }
    }
  };
  return y;
}

Node* Tape::layer_norm(Node* x, Node* weight, Node* bias, double eps) {
  // A layer norm is an RMS norm of the centred row.
  Node* centred = make(x->rows, x->columns);
  const auto mean = [](Node* n, Index r, bool gradient) {
    double sum = 0;
    for (Index c = 0; c < n->columns; ++c) sum += gradient ? n->g(r, c) : n->v(r, c);
    return sum / double(n->columns);
  };
  for (Index r = 0; r < x->rows; ++r) {
    const double m = mean(x, r, false);
    for (Index c = 0; c < x->columns; ++c) centred->v(r, c) = x->v(r, c) - m;
  }
  centred->backward = [=] {
    for (Index r = 0; r < x->rows; ++r) {
      const double m = mean(centred, r, true);
      for (Index c = 0; c < x->columns; ++c) x->g(r, c) += centred->g(r, c) - m;
    }
  };
  return add_bias(rms_norm(centred, weight, eps), bias);
}

Node* Tape::rope(Node* x, Index heads, Index sequence, std::span<const float> cosine,
                 std::span<const float> sine) {
  Node* y = make(x->rows, x->columns);
  const Index head_dim = x->columns / heads;
  const Index half = head_dim / 2;
  const std::vector<double> cos(cosine.begin(), cosine.end());
  const std::vector<double> sin(sine.begin(), sine.end());
  const auto each_pair = [=](const auto& action) {
    for (Index r = 0; r < x->rows; ++r)
      for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < half; ++i) {
          const auto angle = static_cast<std::size_t>(r % sequence * half + i);
          action(r, h * head_dim + i, h * head_dim + i + half, cos[angle], sin[angle]);
        }
  };
  each_pair([&](Index r, Index a, Index b, double c, double s) {
    y->v(r, a) = x->v(r, a) * c - x->v(r, b) * s;
    y->v(r, b) = x->v(r, b) * c + x->v(r, a) * s;
  });
  y->backward = [=] {
    each_pair([&](Index r, Index a, Index b, double c, double s) {
      x->g(r, a) += y->g(r, a) * c + y->g(r, b) * s;
      x->g(r, b) += y->g(r, b) * c - y->g(r, a) * s;
    });
  };
  return y;
}

Node* Tape::attention(Node* q, Node* k, Node* v, const AttentionShape& shape) {
  Node* y = make(q->rows, shape.heads * shape.head_dim);
  // The probabilities of one query row over the keys 0..query of its sequence.
  const auto probabilities = [=](Index row0, Index query, Index q_column, Index k_column) {
    std::vector<double> p(static_cast<std::size_t>(query + 1));
    double sum = 0;
    for (Index key = 0; key <= query; ++key) {
      if (shape.window > 0 && key <= query - shape.window) continue;
      double score = 0;
      for (Index d = 0; d < shape.head_dim; ++d)
        score += q->v(row0 + query, q_column + d) * k->v(row0 + key, k_column + d);
      sum += p[static_cast<std::size_t>(key)] = std::exp(score * shape.scale);
    }
    for (double& probability : p) probability /= sum;
    return p;
  };
  const auto each_row = [=](const auto& action) {
    for (Index b = 0; b < shape.batch; ++b)
      for (Index h = 0; h < shape.heads; ++h)
        for (Index query = 0; query < shape.sequence; ++query) {
          const Index k_column = h / (shape.heads / shape.kv_heads) * shape.head_dim;
          action(b * shape.sequence, query, h * shape.head_dim, k_column,
                 probabilities(b * shape.sequence, query, h * shape.head_dim, k_column));
        }
  };
  each_row([&](Index row0, Index query, Index column, Index k_column, const auto& p) {
    for (Index key = 0; key <= query; ++key)
      for (Index d = 0; d < shape.head_dim; ++d)
        y->v(row0 + query, column + d) +=
            p[static_cast<std::size_t>(key)] * v->v(row0 + key, k_column + d);
  });
  y->backward = [=] {
    each_row([&](Index row0, Index query, Index column, Index k_column, const auto& p) {
      std::vector<double> dp(p.size());
      double along = 0;
      for (Index key = 0; key <= query; ++key) {
        const auto i = static_cast<std::size_t>(key);
        for (Index d = 0; d < shape.head_dim; ++d) {
          dp[i] += y->g(row0 + query, column + d) * v->v(row0 + key, k_column + d);
          v->g(row0 + key, k_column + d) += p[i] * y->g(row0 + query, column + d);
        }
        along += p[i] * dp[i];
      }
      for (Index key = 0; key <= query; ++key) {
        const auto i = static_cast<std::size_t>(key);
        const double ds = p[i] * (dp[i] - along) * shape.scale;
        for (Index d = 0; d < shape.head_dim; ++d) {
          q->g(row0 + query, column + d) += ds * k->v(row0 + key, k_column + d);
          k->g(row0 + key, k_column + d) += ds * q->v(row0 + query, column + d);
        }
      }
    });
  };
  return y;
}

Node* Tape::silu_times(Node* gate, Node* up) {
  Node* y = make(gate->rows, gate->columns);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (std::size_t i = 0; i < y->value.size(); ++i)
    y->value[i] = gate->value[i] * sigmoid(gate->value[i]) * up->value[i];
  y->backward = [=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) {
      const double s = sigmoid(gate->value[i]);
      gate->gradient[i] += y->gradient[i] * up->value[i] * s * (1 + gate->value[i] * (1 - s));
      up->gradient[i] += y->gradient[i] * gate->value[i] * s;
    }
  };
  return y;
}

Node* Tape::gelu_tanh(Node* x) {
  Node* y = make(x->rows, x->columns);
  const double k = std::sqrt(2 / std::numbers::pi);
  const auto inner = [k](double v) { return std::tanh(k * (v + 0.044715 * v * v * v)); };
  for (std::size_t i = 0; i < y->value.size(); ++i)
    y->value[i] = 0.5 * x->value[i] * (1 + inner(x->value[i]));
  y->backward = [=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) {
      const double v = x->value[i];
      const double t = inner(v);
      x->gradient[i] +=
          y->gradient[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * k * (1 + 3 * 0.044715 * v * v));
    }
  };
  return y;
}

Node* Tape::cross_entropy(Node* logits, std::span<const std::int32_t> targets) {
  Node* y = make(logits->rows, 1);
  const std::vector<std::int32_t> wanted(targets.begin(), targets.end());
  const auto normaliser = [=](Index r) {
    double sum = 0;
    for (Index c = 0; c < logits->columns; ++c) sum += std::exp(logits->v(r, c));
    return std::log(sum);
  };
  for (Index r = 0; r < y->rows; ++r) {
    const Index target = wanted[static_cast<std::size_t>(r)];
    y->v(r, 0) = target < 0 ? 0 : normaliser(r) - logits->v(r, target);
  }
  y->backward = [=] {
    for (Index r = 0; r < y->rows; ++r) {
      const Index target = wanted[static_cast<std::size_t>(r)];
      if (target < 0) continue;
      for (Index c = 0; c < logits->columns; ++c)
        logits->g(r, c) +=
            y->g(r, 0) * (std::exp(logits->v(r, c) - normaliser(r)) - (c == target ? 1.0 : 0.0));
    }
  };
  return y;
}

}  // namespace megatrain::reference
