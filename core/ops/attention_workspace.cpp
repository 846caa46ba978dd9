#include "core/ops/attention.h"

namespace megatrain::ops {

namespace {

/// cuDNN pads sequences and heads to its tiles and keeps small tables beside the sums.
constexpr Index kCudnnTile = 128;
constexpr Index kCudnnHeadTile = 64;
constexpr Index kCudnnSlack = Index{4} << 20;

/// A cap on what the smallest piece of a backward pass needs: the query heads of one key/value
/// head, of every batch item or, with the deterministic kind, of one. A row keeps dq in fp32 and,
/// for shared heads, dk and dv of its own head, and row sums (cuDNN 9.19 takes 1946 bytes a row at
/// head size 128). The deterministic kind keeps a bf16 score matrix as well.
Index cudnn_backward(const AttentionShape& shape, bool deterministic) {
  const Index group = shape.query_heads / shape.kv_heads;
  const Index sequence = round_up(shape.sequence, kCudnnTile);
  const Index rows = checked_mul(deterministic ? 1 : shape.batch, checked_mul(group, sequence));
  const Index sums = 16 * round_up(shape.head_dim, kCudnnHeadTile) + 64;
  const Index scores = deterministic ? 2 * sequence : 0;
  return round_up(checked_add(checked_mul(rows, sums + scores), kCudnnSlack), 256);
}

}  // namespace

Index attention_forward_workspace(const AttentionShape& /*shape*/, AttentionBackend backend) {
  return backend == AttentionBackend::own ? 0 : kCudnnSlack;
}

Index attention_backward_workspace(const AttentionShape& shape, AttentionBackend backend) {
  // own: the row sums of o * d_o
  if (backend == AttentionBackend::own)
    return round_up(4 * checked_mul(shape.batch, checked_mul(shape.query_heads, shape.sequence)),
                    256);
  return cudnn_backward(shape, backend == AttentionBackend::cudnn_deterministic);
}

}  // namespace megatrain::ops
