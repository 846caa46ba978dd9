// The forward pass of attention on the tensor cores.

#include "core/ops/cuda/attention_kernels.cuh"
#include "core/ops/cuda/tile.cuh"

namespace megatrain::ops::cuda::tensor_forward {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kRowTiles = 2;  ///< of 16 queries, a warp: each key fragment is used twice
constexpr int kQueries = kWarps * kRowTiles * 16, kKeys = 64;

/// The running softmax of the rows of a warp's tile; every row lives in the four lanes of a quad.
struct Softmax {
  float maximum[kRowTiles][2], sum[kRowTiles][2];  ///< [.][half]: rows g and g + 8

  __device__ Softmax() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maximum[m][half] = -INFINITY;
        sum[m][half] = 0;
      }
  }

  /// Turns scores into exp2(scale * (score - maximum)), and scales what was summed before. The
  /// sums stay per lane until the end.
  template <int kColumns, int kDepthTiles>
  __device__ void update(float (&scores)[kRowTiles][kColumns][4],
                         float (&o)[kRowTiles][kDepthTiles][4], float scale) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = maximum[m][half];
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
        // A row may see no key of its first tiles; then all its scores are minus infinity.
        const float base = largest == -INFINITY ? 0.0F : largest * scale;
        const float shrink = exp2_fast(fmaf(maximum[m][half], scale, -base));
        maximum[m][half] = largest;
        float total = sum[m][half] * shrink;
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], scale, -base));
            total += scores[m][n][i];
          }
        sum[m][half] = total;
#pragma unroll
        for (int n = 0; n < kDepthTiles; ++n) {
          o[m][n][2 * half] *= shrink;
          o[m][n][2 * half + 1] *= shrink;
        }
      }
  }
};

/// A block computes kQueries rows of one head, a warp 16 kRowTiles of them against every key.
/// Keys and values of a tile arrive while the other is worked on.
template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2) forward(AttentionForward op) {
  const AttentionShape& shape = op.shape;
  const Visibility visible(shape);
  const int sequence = visible.sequence, width = static_cast<int>(shape.head_dim);
  const AttentionBlock block(shape, shape.query_heads);
  const int kv_head = block.head / static_cast<int>(shape.query_heads / shape.kv_heads);
  // The last queries see most keys: they go first.
  const int query_tiles = (sequence + kQueries - 1) / kQueries;
  const int first_query = (query_tiles - 1 - block.rank) * kQueries;
  const int last_query = min(first_query + kQueries, sequence) - 1;

  const bf16* q = head_rows<bf16>(op.q, op.q_stride, shape, block.sample, block.head);
  const bf16* k = head_rows<bf16>(op.k, op.k_stride, shape, block.sample, kv_head);
  const bf16* v = head_rows<bf16>(op.v, op.v_stride, shape, block.sample, kv_head);
  using DepthTile = Tile<kDepth>;
  auto* shared = reinterpret_cast<bf16*>(dynamic_shared());
  const DepthTile queries{shared}, keys{shared + kQueries * DepthTile::kPitch},
      values{shared + (kQueries + kKeys) * DepthTile::kPitch};

  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int warp_row = thread / kWarp * kRowTiles * 16;
  float o[kRowTiles][kDepth / 8][4] = {};
  Softmax softmax;
  const float scale = shape.scale * kLog2E;

  const int first_tile = visible.first_key(first_query) / kKeys, last_tile = last_query / kKeys;
  queries.template fetch<kQueries, kThreads>(q, op.q_stride, first_query, sequence, width);
  keys.template fetch<kKeys, kThreads>(k, op.k_stride, first_tile * kKeys, sequence, width);
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    const int first_key = tile * kKeys;
    wait_for_copies();
    __syncthreads();  // keys are here; every warp is done with the last values
    values.template fetch<kKeys, kThreads>(v, op.v_stride, first_key, sequence, width);

    float scores[kRowTiles][kKeys / 8][4] = {};
    multiply_transposed(scores, queries, warp_row, keys);
    if (visible.is_partial(first_query, kQueries, first_key, kKeys)) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int query = first_query + warp_row + m * 16 + lane / 4 + i / 2 * 8;
            const int key = first_key + n * 8 + lane % 4 * 2 + i % 2;
            if (!visible.sees(query, key)) scores[m][n][i] = -INFINITY;
          }
    }
    softmax.update(scores, o, scale);

    wait_for_copies();
    __syncthreads();  // values are here; every warp is done with the keys
    if (tile < last_tile)
      keys.template fetch<kKeys, kThreads>(k, op.k_stride, first_key + kKeys, sequence, width);
    multiply_accumulators<kRowTiles, kKeys / 8, kDepth>(o, scores, values);
  }

  bf16* out = head_rows<bf16>(op.o, op.o_stride, shape, block.sample, block.head);
  float* lse = op.lse + head_values(shape, block.sample, block.head);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax.sum[m][half];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      const int query = first_query + warp_row + m * 16 + lane / 4 + half * 8;
      if (query >= sequence) continue;
      const float inverse = 1.0F / sum;
      store_row<kDepth>(out + query * op.o_stride, o[m], half, inverse, width);
      if (lane % 4 == 0) lse[query] = fmaf(softmax.maximum[m][half], shape.scale, logf(sum));
    }
}

template <int kDepth>
void enqueue(StreamHandle stream, const AttentionForward& op) {
  launch("attention forward", forward<kDepth>,
         attention_grid(op.shape, op.shape.query_heads, kQueries), kThreads,
         Tile<kDepth>::bytes(kQueries + 2 * kKeys), stream, op);
}

void run(StreamHandle stream, const AttentionForward& op) {
  with_depth(op.shape.head_dim, [&](auto depth) { enqueue<decltype(depth)::value>(stream, op); });
}

}  // namespace megatrain::ops::cuda::tensor_forward
