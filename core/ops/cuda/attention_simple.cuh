#pragma once
/// @file
/// Attention in plain fp32 arithmetic on tiles in shared memory, for fp32 and for heads that the
/// tensor-core kernels do not serve. A lane stands for a key while scores are made, and for columns
/// lane, lane + 32, ... of a head while rows are added up.

#include "core/ops/cuda/attention_kernels.cuh"

namespace megatrain::ops::cuda::simple {

inline constexpr int kWarps = 8, kThreads = kWarps * kWarp;
inline constexpr int kKeys = kWarp;

/// Rows of the query tile: fewer for wide heads, so that four tiles fit the smallest GPU.
constexpr int query_rows(int chunks) { return chunks <= 4 ? 32 : 8; }

/// Copies rows [first, first + kRows) of a head, widened, to a tile with an odd pitch (no two rows
/// start in one bank); rows beyond the sequence and columns up to `columns` become zeros.
template <int kRows, class T>
__device__ void fetch(float* tile, int pitch, int columns, const T* rows, Index stride, int first,
                      int sequence, int width) {
  for (int at = threadIdx.x; at < kRows * columns; at += kThreads) {
    const int row = at / columns, column = at % columns;
    const bool valid = first + row < sequence && column < width;
    tile[row * pitch + column] = valid ? widen(rows[(first + row) * stride + column]) : 0.0F;
  }
}

/// dots[r] = rows[first + r] . tile[lane]
template <int kCount>
__device__ void dot_rows(float (&dots)[kCount], const float* rows, int first, const float* tile,
                         int pitch, int width) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < kCount; ++r) dots[r] = 0;
  for (int column = 0; column < width; ++column) {
    const float other = tile[lane * pitch + column];
#pragma unroll
    for (int r = 0; r < kCount; ++r)
      dots[r] = fmaf(rows[(first + r) * pitch + column], other, dots[r]);
  }
}

/// sums[r][c] += sum over j of weights[first + r][j] (pitch kWarp + 1) * tile[j][lane + 32 c]; with
/// kTransposed the weight is weights[j][first + r].
template <int kTerms, bool kTransposed, int kCount, int kChunks>
__device__ void add_rows(float (&sums)[kCount][kChunks], const float* weights, int first,
                         const float* tile, int pitch) {
  const int lane = threadIdx.x % kWarp;
  for (int j = 0; j < kTerms; ++j) {
    float values[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) values[c] = tile[j * pitch + lane + c * kWarp];
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      const float weight =
          weights[kTransposed ? j * (kWarp + 1) + first + r : (first + r) * (kWarp + 1) + j];
#pragma unroll
      for (int c = 0; c < kChunks; ++c) sums[r][c] = fmaf(weight, values[c], sums[r][c]);
    }
  }
}

template <class T, int kChunks>
__device__ void store_row(T* row, const float (&values)[kChunks], float factor, int width) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    if (lane + c * kWarp < width) row[lane + c * kWarp] = narrow<T>(values[c] * factor);
}

/// A block computes query_rows rows of one head.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionForward op) {
  constexpr int kQueries = query_rows(kChunks), kOwn = kQueries / kWarps;
  constexpr int kColumns = kChunks * kWarp, kPitch = kColumns + 1;
  const AttentionShape& shape = op.shape;
  const Visibility visible(shape);
  const int sequence = visible.sequence, width = static_cast<int>(shape.head_dim);
  const AttentionBlock block(shape, shape.query_heads);
  const int kv_head = block.head / static_cast<int>(shape.query_heads / shape.kv_heads);
  const int query_tiles = (sequence + kQueries - 1) / kQueries;
  const int first_query = (query_tiles - 1 - block.rank) * kQueries;
  const int last_query = min(first_query + kQueries, sequence) - 1;
  const T* k = head_rows<T>(op.k, op.k_stride, shape, block.sample, kv_head);
  const T* v = head_rows<T>(op.v, op.v_stride, shape, block.sample, kv_head);

  auto* queries = reinterpret_cast<float*>(dynamic_shared());
  float* keys = queries + kQueries * kPitch;  // later the values of the same tile
  float* weights = keys + kKeys * kPitch;     // [kQueries][kKeys + 1]
  const int lane = threadIdx.x % kWarp, own = threadIdx.x / kWarp * kOwn;
  fetch<kQueries>(queries, kPitch, kColumns,
                  head_rows<T>(op.q, op.q_stride, shape, block.sample, block.head), op.q_stride,
                  first_query, sequence, width);

  float o[kOwn][kChunks] = {}, maximum[kOwn], sum[kOwn] = {};
#pragma unroll
  for (int r = 0; r < kOwn; ++r) maximum[r] = -INFINITY;
  for (int tile = visible.first_key(first_query) / kKeys; tile <= last_query / kKeys; ++tile) {
    const int first_key = tile * kKeys;
    __syncthreads();  // every warp is done with the last values
    fetch<kKeys>(keys, kPitch, kColumns, k, op.k_stride, first_key, sequence, width);
    __syncthreads();
    float scores[kOwn];
    dot_rows(scores, queries, own, keys, kPitch, width);
    __syncthreads();  // every warp is done with the keys
    fetch<kKeys>(keys, kPitch, kColumns, v, op.v_stride, first_key, sequence, width);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const bool sees = visible.sees(first_query + own + r, first_key + lane);
      const float score = sees ? scores[r] * shape.scale : -INFINITY;
      const float largest = fmaxf(maximum[r], warp_max(score));
      // A row may see no key of its first tiles.
      const float base = largest == -INFINITY ? 0.0F : largest;
      const float shrink = expf(maximum[r] - base), weight = expf(score - base);
      maximum[r] = largest;
      sum[r] = fmaf(sum[r], shrink, warp_sum(weight));
#pragma unroll
      for (int c = 0; c < kChunks; ++c) o[r][c] *= shrink;
      weights[(own + r) * (kWarp + 1) + lane] = weight;
    }
    __syncthreads();
    add_rows<kKeys, false>(o, weights, own, keys, kPitch);
  }

  T* out = head_rows<T>(op.o, op.o_stride, shape, block.sample, block.head);
  float* lse = op.lse + head_values(shape, block.sample, block.head);
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int query = first_query + own + r;
    if (query >= sequence) continue;
    store_row(out + query * op.o_stride, o[r], 1.0F / sum[r], width);
    if (lane == 0) lse[query] = maximum[r] + logf(sum[r]);
  }
}

/// The four tiles of a backward kernel and the probabilities and score gradients between them.
template <int kChunks>
struct BackwardTiles {
  static constexpr int kQueries = query_rows(kChunks), kOwn = kQueries / kWarps;
  static constexpr int kColumns = kChunks * kWarp, kPitch = kColumns + 1;
  static constexpr Index kBytes =
      Index{4} * (2 * (kKeys + kQueries) * kPitch + 2 * kQueries * (kWarp + 1));

  float *keys, *values, *queries, *outputs, *probabilities, *slopes;

  __device__ BackwardTiles() {
    keys = reinterpret_cast<float*>(dynamic_shared());
    values = keys + kKeys * kPitch;
    queries = values + kKeys * kPitch;
    outputs = queries + kQueries * kPitch;
    probabilities = outputs + kQueries * kPitch;
    slopes = probabilities + kQueries * (kWarp + 1);
  }

  /// p and ds = p * (dp - delta) of this warp's rows; zero where a query does not see a key.
  __device__ void make_scores(const Visibility& visible, int first_query, int first_key, int width,
                              float scale, const float* lse, const float* delta) const {
    const int lane = threadIdx.x % kWarp, own = threadIdx.x / kWarp * kOwn;
    float scores[kOwn], products[kOwn];
    dot_rows(scores, queries, own, keys, kPitch, width);
    dot_rows(products, outputs, own, values, kPitch, width);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int query = first_query + own + r;
      float p = 0, ds = 0;
      if (query < visible.sequence && visible.sees(query, first_key + lane)) {
        p = expf(fmaf(scores[r], scale, -lse[query]));
        ds = p * (products[r] - delta[query]);
      }
      probabilities[(own + r) * (kWarp + 1) + lane] = p;
      slopes[(own + r) * (kWarp + 1) + lane] = ds;
    }
  }
};

/// dk and dv of kKeys keys of one key/value head; query heads and queries are added in order.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    key_value_gradient(AttentionBackward op, const float* delta) {
  using Tiles = BackwardTiles<kChunks>;
  constexpr int kQueries = Tiles::kQueries, kColumns = Tiles::kColumns, kPitch = Tiles::kPitch;
  constexpr int kOwnKeys = kKeys / kWarps;
  const AttentionShape& shape = op.shape;
  const Visibility visible(shape);
  const int sequence = visible.sequence, width = static_cast<int>(shape.head_dim);
  const AttentionBlock block(shape, shape.kv_heads);
  const int group = static_cast<int>(shape.query_heads / shape.kv_heads);
  const int first_key = block.rank * kKeys, last_key = min(first_key + kKeys, sequence) - 1;
  const Tiles tiles;
  fetch<kKeys>(tiles.keys, kPitch, kColumns,
               head_rows<T>(op.k, op.k_stride, shape, block.sample, block.head), op.k_stride,
               first_key, sequence, width);
  fetch<kKeys>(tiles.values, kPitch, kColumns,
               head_rows<T>(op.v, op.v_stride, shape, block.sample, block.head), op.v_stride,
               first_key, sequence, width);

  const int own = threadIdx.x / kWarp * kOwnKeys;
  float dk[kOwnKeys][kChunks] = {}, dv[kOwnKeys][kChunks] = {};
  for (int head = block.head * group; head < (block.head + 1) * group; ++head) {
    const T* q = head_rows<T>(op.q, op.q_stride, shape, block.sample, head);
    const T* d_o = head_rows<T>(op.d_o, op.d_o_stride, shape, block.sample, head);
    const Index rows = head_values(shape, block.sample, head);
    for (int tile = first_key / kQueries; tile <= visible.last_query(last_key) / kQueries; ++tile) {
      const int first_query = tile * kQueries;
      __syncthreads();  // every warp is done with the last tile
      fetch<kQueries>(tiles.queries, kPitch, kColumns, q, op.q_stride, first_query, sequence,
                      width);
      fetch<kQueries>(tiles.outputs, kPitch, kColumns, d_o, op.d_o_stride, first_query, sequence,
                      width);
      __syncthreads();
      tiles.make_scores(visible, first_query, first_key, width, shape.scale, op.lse + rows,
                        delta + rows);
      __syncthreads();
      add_rows<kQueries, true>(dv, tiles.probabilities, own, tiles.outputs, kPitch);
      add_rows<kQueries, true>(dk, tiles.slopes, own, tiles.queries, kPitch);
    }
  }

  T* dk_rows = head_rows<T>(op.dk, op.dk_stride, shape, block.sample, block.head);
  T* dv_rows = head_rows<T>(op.dv, op.dv_stride, shape, block.sample, block.head);
#pragma unroll
  for (int r = 0; r < kOwnKeys; ++r) {
    const int key = first_key + own + r;
    if (key >= sequence) continue;
    store_row(dk_rows + key * op.dk_stride, dk[r], shape.scale, width);
    store_row(dv_rows + key * op.dv_stride, dv[r], 1.0F, width);
  }
}

/// dq of query_rows queries of one head; keys are added in order.
template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    query_gradient(AttentionBackward op, const float* delta) {
  using Tiles = BackwardTiles<kChunks>;
  constexpr int kQueries = Tiles::kQueries, kColumns = Tiles::kColumns, kPitch = Tiles::kPitch;
  constexpr int kOwn = Tiles::kOwn;
  const AttentionShape& shape = op.shape;
  const Visibility visible(shape);
  const int sequence = visible.sequence, width = static_cast<int>(shape.head_dim);
  const AttentionBlock block(shape, shape.query_heads);
  const int kv_head = block.head / static_cast<int>(shape.query_heads / shape.kv_heads);
  const int query_tiles = (sequence + kQueries - 1) / kQueries;
  const int first_query = (query_tiles - 1 - block.rank) * kQueries;
  const int last_query = min(first_query + kQueries, sequence) - 1;
  const T* k = head_rows<T>(op.k, op.k_stride, shape, block.sample, kv_head);
  const T* v = head_rows<T>(op.v, op.v_stride, shape, block.sample, kv_head);
  const Index rows = head_values(shape, block.sample, block.head);
  const Tiles tiles;
  fetch<kQueries>(tiles.queries, kPitch, kColumns,
                  head_rows<T>(op.q, op.q_stride, shape, block.sample, block.head), op.q_stride,
                  first_query, sequence, width);
  fetch<kQueries>(tiles.outputs, kPitch, kColumns,
                  head_rows<T>(op.d_o, op.d_o_stride, shape, block.sample, block.head),
                  op.d_o_stride, first_query, sequence, width);

  const int own = threadIdx.x / kWarp * kOwn;
  float dq[kOwn][kChunks] = {};
  for (int tile = visible.first_key(first_query) / kKeys; tile <= last_query / kKeys; ++tile) {
    const int first_key = tile * kKeys;
    __syncthreads();  // every warp is done with the last tile
    fetch<kKeys>(tiles.keys, kPitch, kColumns, k, op.k_stride, first_key, sequence, width);
    fetch<kKeys>(tiles.values, kPitch, kColumns, v, op.v_stride, first_key, sequence, width);
    __syncthreads();
    tiles.make_scores(visible, first_query, first_key, width, shape.scale, op.lse + rows,
                      delta + rows);
    __syncwarp();  // a warp reads back its own rows
    add_rows<kKeys, false>(dq, tiles.slopes, own, tiles.keys, kPitch);
  }

  T* dq_rows = head_rows<T>(op.dq, op.dq_stride, shape, block.sample, block.head);
#pragma unroll
  for (int r = 0; r < kOwn; ++r)
    if (first_query + own + r < sequence)
      store_row(dq_rows + (first_query + own + r) * op.dq_stride, dq[r], shape.scale, width);
}

/// Calls body(value of the storage type, Constant<chunks of 32 columns that hold a head>).
template <class Body>
void with_type_and_chunks(const AttentionShape& shape, const Body& body) {
  with_type(shape.type, [&](auto element) {
    if (shape.head_dim <= 64)
      body(element, Constant<2>{});
    else if (shape.head_dim <= 128)
      body(element, Constant<4>{});
    else
      body(element, Constant<8>{});
  });
}

inline void forward(StreamHandle stream, const AttentionForward& op) {
  with_type_and_chunks(op.shape, [&](auto element, auto chunks) {
    constexpr int kChunks = decltype(chunks)::value, kQueries = query_rows(kChunks);
    constexpr Index kBytes =
        Index{4} * ((kQueries + kKeys) * (kChunks * kWarp + 1) + kQueries * (kWarp + 1));
    launch("attention forward", forward_kernel<decltype(element), kChunks>,
           attention_grid(op.shape, op.shape.query_heads, kQueries), kThreads, kBytes, stream, op);
  });
}

inline void backward(StreamHandle stream, const AttentionBackward& op, const float* delta) {
  with_type_and_chunks(op.shape, [&](auto element, auto chunks) {
    using T = decltype(element);
    constexpr int kChunks = decltype(chunks)::value;
    constexpr Index kBytes = BackwardTiles<kChunks>::kBytes;
    launch("attention backward of keys and values", key_value_gradient<T, kChunks>,
           attention_grid(op.shape, op.shape.kv_heads, kKeys), kThreads, kBytes, stream, op, delta);
    launch("attention backward of queries", query_gradient<T, kChunks>,
           attention_grid(op.shape, op.shape.query_heads, query_rows(kChunks)), kThreads, kBytes,
           stream, op, delta);
  });
}

}  // namespace megatrain::ops::cuda::simple
