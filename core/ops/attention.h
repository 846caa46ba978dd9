#pragma once
/// @file
/// Causal softmax attention with grouped keys and values, in linear memory
/// (Dao et al. 2022, algorithms 1 and 4).

#include "core/ops/common.h"

namespace megatrain::ops {

/// Shapes of one call. Query head h reads key/value head h / (query_heads / kv_heads).
/// Query i sees keys j with j <= i and, when window > 0, j > i - window.
struct AttentionShape {
  Index batch = 0, sequence = 0;
  Index query_heads = 0, kv_heads = 0, head_dim = 0;
  Index window = 0;  ///< keys that a query sees, itself included; 0: all before it
  float scale = 0;
  DType type = DType::f32;
  bool operator==(const AttentionShape&) const = default;
};

/// Which kernels compute attention. `own` is always available: any head size, deterministic.
enum class AttentionBackend : std::uint8_t { own, cudnn, cudnn_deterministic };

/// "own", "cudnn" or "cudnn-deterministic", as options spell them.
constexpr std::string_view name(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::own:
      return "own";
    case AttentionBackend::cudnn:
      return "cudnn";
    case AttentionBackend::cudnn_deterministic:
      return "cudnn-deterministic";
  }
  return "?";
}

/// o = softmax(scale * q k^T + mask) v; lse = log of the softmax's denominator (natural).
/// Every tensor is [batch * sequence] tokens with a stride in elements; heads follow one another.
struct AttentionForward {
  AttentionShape shape;
  AttentionBackend backend = AttentionBackend::own;
  const void* q = nullptr;
  Index q_stride = 0;
  const void* k = nullptr;
  Index k_stride = 0;
  const void* v = nullptr;
  Index v_stride = 0;
  void* o = nullptr;
  Index o_stride = 0;
  float* lse = nullptr;  ///< [batch, query_heads, sequence]
  Workspace workspace;
};

/// dq, dk, dv from d(o); dk and dv are summed over the query heads that share them. They must not
/// overlap q, k, v, o or d_o.
struct AttentionBackward {
  AttentionShape shape;
  AttentionBackend backend = AttentionBackend::own;
  const void* q = nullptr;
  Index q_stride = 0;
  const void* k = nullptr;
  Index k_stride = 0;
  const void* v = nullptr;
  Index v_stride = 0;
  const void* o = nullptr;
  Index o_stride = 0;
  const void* d_o = nullptr;
  Index d_o_stride = 0;
  const float* lse = nullptr;
  void* dq = nullptr;
  Index dq_stride = 0;
  void* dk = nullptr;
  Index dk_stride = 0;
  void* dv = nullptr;
  Index dv_stride = 0;
  Workspace workspace;
};

/// Scratch that a backend may use for `shape`, a pure function so that a plan can be made without
/// the device. A backend that wants more is refused when it is chosen.
Index attention_forward_workspace(const AttentionShape& shape, AttentionBackend backend);
Index attention_backward_workspace(const AttentionShape& shape, AttentionBackend backend);

}  // namespace megatrain::ops
