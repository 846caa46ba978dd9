#include "core/ops/work.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain::ops {

namespace {

/// Query-key pairs that a causal (and windowed) mask leaves of one sequence.
double visible_pairs(const AttentionShape& shape) {
  const Index window = shape.window > 0 ? std::min(shape.window, shape.sequence) : shape.sequence;
  // The first `window` queries see 1, 2, ... keys, the others `window` each.
  return double(window) * double(window + 1) / 2 + double(shape.sequence - window) * double(window);
}

/// Multiply-adds x 2 of one product over all visible pairs: q k^T, or probabilities times v.
double pairs_flops(const AttentionShape& shape) {
  return 2.0 * double(shape.batch) * double(shape.query_heads) * double(shape.head_dim) *
         visible_pairs(shape);
}

/// `passes` over a matrix of the type.
Work passes(double count, Index rows, Index columns, DType type) {
  return {.bytes = count * double(rows) * double(columns) * double(size_of(type))};
}

struct WorkOf {
  Work operator()(const Gemm& op) const {
    return {.product_flops = 2.0 * double(op.m) * double(op.n) * double(op.k)};
  }
  Work operator()(const AttentionForward& op) const {
    return {.attention_flops = 2 * pairs_flops(op.shape)};
  }
  // It makes the scores again: five products where forward has two.
  Work operator()(const AttentionBackward& op) const {
    return {.attention_flops = 5 * pairs_flops(op.shape)};
  }
  Work operator()(const BiasGradient& op) const { return passes(1, op.rows, op.columns, op.type); }
  Work operator()(const NormForward& op) const { return passes(2, op.rows, op.columns, op.type); }
  Work operator()(const NormBackward& op) const {
    return passes(op.add == nullptr ? 3 : 4, op.rows, op.columns, op.type);
  }
  Work operator()(const Rope& op) const {
    return passes(2, op.tokens, op.heads * op.head_dim, op.type);
  }
  Work operator()(const SwigluForward& op) const { return passes(3, op.rows, op.columns, op.type); }
  Work operator()(const SwigluBackward& op) const {
    return passes(5, op.rows, op.columns, op.type);
  }
  Work operator()(const GeluForward& op) const { return passes(2, op.count, 1, op.type); }
  Work operator()(const GeluBackward& op) const { return passes(3, op.count, 1, op.type); }
  Work operator()(const EmbeddingForward& op) const {
    return passes(op.positions == nullptr ? 2 : 3, op.tokens, op.width, op.type);
  }
  // Rows of the table are read and written; those of dy are more, but their number is data.
  Work operator()(const EmbeddingBackward& op) const {
    return passes(2, op.uniques, op.width, DType::f32);
  }
  Work operator()(const PositionBackward& op) const {
    return passes(1, op.batch * op.sequence, op.width, op.type);
  }
  Work operator()(const CrossEntropy& op) const {
    return passes(op.gradient ? 2 : 1, op.tokens, op.vocabulary, op.type);
  }
  Work operator()(const LogitStatistics& op) const {
    return passes(1, op.tokens, op.vocabulary, op.type);
  }
  Work operator()(const CrossEntropyOfPart& op) const {
    return passes(op.gradient ? 2 : 0, op.tokens, op.columns, op.type);
  }
  Work operator()(const ReduceGradient& op) const {
    return {.bytes = double(op.count) * double(size_of(DType::f32) + size_of(op.wire_type))};
  }
  Work operator()(const AdamW& op) const {
    return {.bytes =
                double(op.slice.count) * double(adamw_traffic(op.slice.master, op.slice.moment_type,
                                                              op.slice.gradient_type))};
  }
  Work operator()(const DeviceCopy& op) const { return {.bytes = 2.0 * double(op.bytes)}; }
};

struct NameOf {
  std::string_view operator()(const Gemm&) const { return "product"; }
  std::string_view operator()(const AttentionForward&) const { return "attention"; }
  std::string_view operator()(const AttentionBackward&) const { return "attention backward"; }
  std::string_view operator()(const BiasGradient&) const { return "bias gradient"; }
  std::string_view operator()(const NormForward&) const { return "norm"; }
  std::string_view operator()(const NormBackward&) const { return "norm backward"; }
  std::string_view operator()(const Rope& op) const {
    return op.inverse ? "rope backward" : "rope";
  }
  std::string_view operator()(const SwigluForward&) const { return "swiglu"; }
  std::string_view operator()(const SwigluBackward&) const { return "swiglu backward"; }
  std::string_view operator()(const GeluForward&) const { return "gelu"; }
  std::string_view operator()(const GeluBackward&) const { return "gelu backward"; }
  std::string_view operator()(const EmbeddingForward&) const { return "embedding"; }
  std::string_view operator()(const EmbeddingBackward&) const { return "embedding backward"; }
  std::string_view operator()(const PositionBackward&) const { return "positions backward"; }
  std::string_view operator()(const CrossEntropy&) const { return "cross entropy"; }
  std::string_view operator()(const LogitStatistics&) const { return "logit statistics"; }
  std::string_view operator()(const CrossEntropyOfPart&) const { return "cross entropy of a part"; }
  std::string_view operator()(const ReduceGradient&) const { return "reduce gradient"; }
  std::string_view operator()(const AdamW&) const { return "AdamW"; }
  std::string_view operator()(const DeviceCopy&) const { return "copy"; }
};

std::string matrix_text(Index rows, Index columns) { return fmt::format("{} x {}", rows, columns); }

std::string attention_text(const AttentionShape& shape) {
  const std::string window = shape.window > 0 ? fmt::format(", window {}", shape.window) : "";
  return fmt::format("{} x {}, {} heads on {} of {}{}", shape.batch, shape.sequence,
                     shape.query_heads, shape.kv_heads, shape.head_dim, window);
}

struct ShapeOf {
  std::string operator()(const Gemm& op) const {
    return fmt::format("m {} n {} k {}{}", op.m, op.n, op.k, op.c == nullptr ? "" : ", added");
  }
  std::string operator()(const AttentionForward& op) const { return attention_text(op.shape); }
  std::string operator()(const AttentionBackward& op) const { return attention_text(op.shape); }
  std::string operator()(const BiasGradient& op) const { return matrix_text(op.rows, op.columns); }
  std::string operator()(const NormForward& op) const { return matrix_text(op.rows, op.columns); }
  std::string operator()(const NormBackward& op) const { return matrix_text(op.rows, op.columns); }
  std::string operator()(const Rope& op) const {
    return fmt::format("{} x {} x {}", op.tokens, op.heads, op.head_dim);
  }
  std::string operator()(const SwigluForward& op) const { return matrix_text(op.rows, op.columns); }
  std::string operator()(const SwigluBackward& op) const {
    return matrix_text(op.rows, op.columns);
  }
  std::string operator()(const GeluForward& op) const { return std::to_string(op.count); }
  std::string operator()(const GeluBackward& op) const { return std::to_string(op.count); }
  std::string operator()(const EmbeddingForward& op) const {
    return matrix_text(op.tokens, op.width);
  }
  std::string operator()(const EmbeddingBackward& op) const {
    return matrix_text(op.uniques, op.width);
  }
  std::string operator()(const PositionBackward& op) const {
    return matrix_text(op.batch * op.sequence, op.width);
  }
  std::string operator()(const CrossEntropy& op) const {
    return matrix_text(op.tokens, op.vocabulary);
  }
  std::string operator()(const LogitStatistics& op) const {
    return matrix_text(op.tokens, op.vocabulary);
  }
  std::string operator()(const CrossEntropyOfPart& op) const {
    return matrix_text(op.tokens, op.columns);
  }
  std::string operator()(const ReduceGradient& op) const { return std::to_string(op.count); }
  std::string operator()(const AdamW& op) const { return std::to_string(op.slice.count); }
  std::string operator()(const DeviceCopy& op) const { return std::to_string(op.bytes); }
};

}  // namespace

Work work_of(const AnyOp& op) { return std::visit(WorkOf(), op); }

std::string_view name(const AnyOp& op) { return std::visit(NameOf(), op); }

std::string shape_text(const AnyOp& op) { return std::visit(ShapeOf(), op); }

}  // namespace megatrain::ops
