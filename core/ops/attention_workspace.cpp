#include "core/ops/attention.h"

namespace megatrain::ops {

namespace {

/// cuDNN pads sequences to its tiles and keeps small tables beside the sums.
constexpr Index kCudnnTile = 128;
constexpr Index kCudnnSlack = Index{1} << 20;

/// cuDNN's backward runs once per group of query heads that share a key/value head, so that its
/// fp32 sums are those of one group: dq with the row sums, and full-head dk and dv when several
/// query heads share one. The deterministic kind keeps a bf16 score matrix as well.
Index cudnn_backward(const AttentionShape& shape, bool deterministic) {
  const Index group = shape.query_heads / shape.kv_heads;
  const Index sequence = round_up(shape.sequence, kCudnnTile);
  const Index rows = checked_mul(shape.batch, checked_mul(group, sequence));
  const Index width = round_up(shape.head_dim, 32);
  Index bytes = checked_mul(4 * rows, width + 2);
  if (group > 1) bytes = checked_add(bytes, checked_mul(8 * rows, width));
  if (deterministic) bytes = checked_add(bytes, checked_mul(2 * rows, sequence));
  return round_up(checked_add(bytes, kCudnnSlack), 256);
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
