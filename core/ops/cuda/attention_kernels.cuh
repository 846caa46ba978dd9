#pragma once
/// @file
/// What the attention kernels share. Two families: tensor cores for bf16 heads of up to 128
/// (attention_tensor_*.cu), and plain fp32 arithmetic for everything else (attention_simple.cuh).
/// Both keep no score outside a tile, and both compute dq apart from dk and dv, so that no gradient
/// is added to by two blocks.

#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {

namespace tensor_forward {
void run(StreamHandle stream, const AttentionForward& op);
}
namespace tensor_backward {
/// @param delta  sum of o * d_o of every row, [batch, query_heads, sequence]
void run(StreamHandle stream, const AttentionBackward& op, const float* delta);
}  // namespace tensor_backward

inline constexpr float kLog2E = 1.4426950408889634F;

/// The mask of one call. No window is a window of the whole sequence.
struct Visibility {
  int sequence, window;

  __device__ explicit Visibility(const AttentionShape& shape)
      : sequence(static_cast<int>(shape.sequence)),
        window(static_cast<int>(
            shape.window > 0 && shape.window < shape.sequence ? shape.window : shape.sequence)) {}

  [[nodiscard]] __device__ bool sees(int query, int key) const {
    return key <= query && key > query - window;
  }
  /// The first key that `query` sees; its last is itself.
  [[nodiscard]] __device__ int first_key(int query) const {
    return query < window ? 0 : query - window + 1;
  }
  /// The last query that sees `key`; its first is itself.
  [[nodiscard]] __device__ int last_query(int key) const {
    return key < sequence - window ? key + window - 1 : sequence - 1;
  }
  /// True when some query of [query, query + queries) does not see some key of [key, key + keys).
  [[nodiscard]] __device__ bool is_partial(int query, int queries, int key, int keys) const {
    return key + keys - 1 > query || key <= query + queries - 1 - window;
  }
};

/// What a block works on. Heads change fastest, so that blocks that run together share keys and
/// values; `rank` is the tile's place in the order of launch.
struct AttentionBlock {
  Index sample;
  int head, rank;

  __device__ AttentionBlock(const AttentionShape& shape, Index heads) {
    const Index pairs = shape.batch * heads;
    rank = static_cast<int>(blockIdx.x / pairs);
    const Index pair = blockIdx.x % pairs;
    sample = pair / heads;
    head = static_cast<int>(pair % heads);
  }
};

/// The grid for AttentionBlock with tiles of `rows` rows.
inline dim3 attention_grid(const AttentionShape& shape, Index heads, int rows) {
  const Index blocks = shape.batch * heads * ceil_div(shape.sequence, rows);
  require(blocks < (Index{1} << 31) && shape.sequence < (Index{1} << 30),
          "attention call is too large for one launch");
  return dim3(static_cast<unsigned>(blocks));
}

/// Where a head's rows of one sample begin.
template <class T>
__device__ const T* head_rows(const void* tensor, Index stride, const AttentionShape& shape,
                              Index sample, Index head) {
  return static_cast<const T*>(tensor) + sample * shape.sequence * stride + head * shape.head_dim;
}
template <class T>
__device__ T* head_rows(void* tensor, Index stride, const AttentionShape& shape, Index sample,
                        Index head) {
  return static_cast<T*>(tensor) + sample * shape.sequence * stride + head * shape.head_dim;
}

/// Where a query head's values (lse, delta) of one sample begin.
__device__ inline Index head_values(const AttentionShape& shape, Index sample, Index head) {
  return (sample * shape.query_heads + head) * shape.sequence;
}

}  // namespace megatrain::ops::cuda
