// The backward pass of attention on the tensor cores: seven products a tile instead of five, and
// in return no gradient is added to by two blocks.

#include "core/ops/cuda/attention_kernels.cuh"
#include "core/ops/cuda/tile.cuh"

namespace megatrain::ops::cuda::tensor_backward {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
/// Rows that arrive in one step of the inner loop (queries for dk and dv, keys for dq).
constexpr int kStep = 32;

/// Tiles of 16 rows that a warp holds in accumulators: what fits the register file.
constexpr int row_tiles(int depth) { return depth <= 64 ? 2 : 1; }
constexpr int block_rows(int depth) { return kWarps * row_tiles(depth) * 16; }

/// dk and dv of block_rows keys of one key/value head. The scores are computed transposed, keys
/// down: so p and ds are accumulators that feed the next product without leaving registers. Query
/// heads and queries are added in order.
template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2)
    key_value_gradient(AttentionBackward op, const float* delta) {
  constexpr int kRowTiles = row_tiles(kDepth), kKeys = block_rows(kDepth);
  const AttentionShape& shape = op.shape;
  const Visibility visible(shape);
  const int sequence = visible.sequence, width = static_cast<int>(shape.head_dim);
  const AttentionBlock block(shape, shape.kv_heads);
  const int group = static_cast<int>(shape.query_heads / shape.kv_heads);
  const int first_key = block.rank * kKeys;  // the first keys are seen most: they go first
  const int last_key = min(first_key + kKeys, sequence) - 1;

  const bf16* k = head_rows<bf16>(op.k, op.k_stride, shape, block.sample, block.head);
  const bf16* v = head_rows<bf16>(op.v, op.v_stride, shape, block.sample, block.head);
  using DepthTile = Tile<kDepth>;
  auto* shared = reinterpret_cast<bf16*>(dynamic_shared());
  const DepthTile keys{shared}, values{shared + kKeys * DepthTile::kPitch};
  bf16* stages = shared + 2 * kKeys * DepthTile::kPitch;
  constexpr int kStageSize = 2 * kStep * DepthTile::kPitch;
  auto* row_values = reinterpret_cast<float*>(stages + 2 * kStageSize);  // [stage][lse, delta][row]

  const int first_tile = first_key / kStep, last_tile = visible.last_query(last_key) / kStep;
  const int tiles = last_tile - first_tile + 1, steps = tiles * group;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const auto fetch = [&](int step) {
    const int head = block.head * group + step / tiles;
    const int query = (first_tile + step % tiles) * kStep, stage = step % 2;
    const bf16* q = head_rows<bf16>(op.q, op.q_stride, shape, block.sample, head);
    const bf16* d_o = head_rows<bf16>(op.d_o, op.d_o_stride, shape, block.sample, head);
    const DepthTile queries{stages + stage * kStageSize};
    const DepthTile outputs{queries.data + kStep * DepthTile::kPitch};
    queries.template fetch<kStep, kThreads>(q, op.q_stride, query, sequence, width);
    outputs.template fetch<kStep, kThreads>(d_o, op.d_o_stride, query, sequence, width);
    if (thread < 2 * kStep) {
      const int row = thread % kStep;
      const float* source =
          (thread < kStep ? op.lse : delta) + head_values(shape, block.sample, head);
      const bool valid = query + row < sequence;
      copy_async_word(row_values + stage * 2 * kStep + thread,
                      valid ? source + query + row : source, valid);
    }
  };

  const int warp_row = thread / kWarp * kRowTiles * 16;
  float dk[kRowTiles][kDepth / 8][4] = {}, dv[kRowTiles][kDepth / 8][4] = {};
  const float scale = shape.scale * kLog2E;

  keys.template fetch<kKeys, kThreads>(k, op.k_stride, first_key, sequence, width);
  values.template fetch<kKeys, kThreads>(v, op.v_stride, first_key, sequence, width);
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    wait_for_copies();
    __syncthreads();  // this stage is here; every warp is done with the other one
    if (step + 1 < steps) fetch(step + 1);
    const int first_query = (first_tile + step % tiles) * kStep, stage = step % 2;
    const DepthTile queries{stages + stage * kStageSize};
    const DepthTile outputs{queries.data + kStep * DepthTile::kPitch};
    const float* lse = row_values + stage * 2 * kStep;
    const float* row_delta = lse + kStep;

    // Queries beyond the sequence are rows of zeros and add nothing.
    float p[kRowTiles][kStep / 8][4] = {};
    multiply_transposed(p, keys, warp_row, queries);
    const bool partial = visible.is_partial(first_query, kStep, first_key, kKeys);
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = n * 8 + lane % 4 * 2 + i;
        const float base = lse[column] * kLog2E;
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& value = p[m][n][2 * half + i];
            const int key = first_key + warp_row + m * 16 + lane / 4 + half * 8;
            value = partial && !visible.sees(first_query + column, key)
                        ? 0.0F
                        : exp2_fast(fmaf(value, scale, -base));
          }
      }
    multiply_accumulators<kRowTiles, kStep / 8, kDepth>(dv, p, outputs);

    float ds[kRowTiles][kStep / 8][4] = {};
    multiply_transposed(ds, values, warp_row, outputs);
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float product = row_delta[n * 8 + lane % 4 * 2 + i % 2];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - product);
      }
    multiply_accumulators<kRowTiles, kStep / 8, kDepth>(dk, ds, queries);
  }

  bf16* dk_rows = head_rows<bf16>(op.dk, op.dk_stride, shape, block.sample, block.head);
  bf16* dv_rows = head_rows<bf16>(op.dv, op.dv_stride, shape, block.sample, block.head);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key + warp_row + m * 16 + lane / 4 + half * 8;
      if (key >= sequence) continue;
      store_row<kDepth>(dk_rows + key * op.dk_stride, dk[m], half, shape.scale, width);
      store_row<kDepth>(dv_rows + key * op.dv_stride, dv[m], half, 1.0F, width);
    }
}

/// dq of block_rows queries of one head; keys are added in order.
template <int kDepth>
__global__ void __launch_bounds__(kThreads, 2)
    query_gradient(AttentionBackward op, const float* delta) {
  constexpr int kRowTiles = row_tiles(kDepth), kQueries = block_rows(kDepth);
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
  const bf16* d_o = head_rows<bf16>(op.d_o, op.d_o_stride, shape, block.sample, block.head);
  const bf16* k = head_rows<bf16>(op.k, op.k_stride, shape, block.sample, kv_head);
  const bf16* v = head_rows<bf16>(op.v, op.v_stride, shape, block.sample, kv_head);
  using DepthTile = Tile<kDepth>;
  auto* shared = reinterpret_cast<bf16*>(dynamic_shared());
  const DepthTile queries{shared}, outputs{shared + kQueries * DepthTile::kPitch};
  bf16* stages = shared + 2 * kQueries * DepthTile::kPitch;
  constexpr int kStageSize = 2 * kStep * DepthTile::kPitch;
  const auto fetch = [&](int tile) {
    const DepthTile keys{stages + tile % 2 * kStageSize};
    const DepthTile values{keys.data + kStep * DepthTile::kPitch};
    keys.template fetch<kStep, kThreads>(k, op.k_stride, tile * kStep, sequence, width);
    values.template fetch<kStep, kThreads>(v, op.v_stride, tile * kStep, sequence, width);
  };

  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int warp_row = thread / kWarp * kRowTiles * 16;
  const float scale = shape.scale * kLog2E;
  float base[kRowTiles][2], product[kRowTiles][2];
  const Index row_values = head_values(shape, block.sample, block.head);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp_row + m * 16 + lane / 4 + half * 8;
      base[m][half] = query < sequence ? op.lse[row_values + query] * kLog2E : 0.0F;
      product[m][half] = query < sequence ? delta[row_values + query] : 0.0F;
    }

  float dq[kRowTiles][kDepth / 8][4] = {};
  const int first_tile = visible.first_key(first_query) / kStep, last_tile = last_query / kStep;
  queries.template fetch<kQueries, kThreads>(q, op.q_stride, first_query, sequence, width);
  outputs.template fetch<kQueries, kThreads>(d_o, op.d_o_stride, first_query, sequence, width);
  fetch(first_tile);
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    wait_for_copies();
    __syncthreads();  // this stage is here; every warp is done with the other one
    if (tile < last_tile) fetch(tile + 1);
    const int first_key = tile * kStep;
    const DepthTile keys{stages + tile % 2 * kStageSize};
    const DepthTile values{keys.data + kStep * DepthTile::kPitch};

    float p[kRowTiles][kStep / 8][4] = {}, ds[kRowTiles][kStep / 8][4] = {};
    multiply_transposed(p, queries, warp_row, keys);
    multiply_transposed(ds, outputs, warp_row, values);
    const bool partial = visible.is_partial(first_query, kQueries, first_key, kStep);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = first_query + warp_row + m * 16 + lane / 4 + i / 2 * 8;
          const int key = first_key + n * 8 + lane % 4 * 2 + i % 2;
          const float probability = partial && !visible.sees(query, key)
                                        ? 0.0F
                                        : exp2_fast(fmaf(p[m][n][i], scale, -base[m][i / 2]));
          ds[m][n][i] = probability * (ds[m][n][i] - product[m][i / 2]);
        }
    multiply_accumulators<kRowTiles, kStep / 8, kDepth>(dq, ds, keys);
  }

  bf16* dq_rows = head_rows<bf16>(op.dq, op.dq_stride, shape, block.sample, block.head);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp_row + m * 16 + lane / 4 + half * 8;
      if (query < sequence)
        store_row<kDepth>(dq_rows + query * op.dq_stride, dq[m], half, shape.scale, width);
    }
}

template <int kDepth>
void enqueue(StreamHandle stream, const AttentionBackward& op, const float* delta) {
  constexpr int kRows = block_rows(kDepth);
  constexpr Index kTiles = Tile<kDepth>::bytes(2 * kRows + 4 * kStep);
  constexpr Index kRowValues = 4 * kStep * 4;
  launch("attention backward of keys and values", key_value_gradient<kDepth>,
         attention_grid(op.shape, op.shape.kv_heads, kRows), kThreads, kTiles + kRowValues, stream,
         op, delta);
  launch("attention backward of queries", query_gradient<kDepth>,
         attention_grid(op.shape, op.shape.query_heads, kRows), kThreads, kTiles, stream, op,
         delta);
}

void run(StreamHandle stream, const AttentionBackward& op, const float* delta) {
  with_depth(op.shape.head_dim,
             [&](auto depth) { enqueue<decltype(depth)::value>(stream, op, delta); });
}

}  // namespace megatrain::ops::cuda::tensor_backward
