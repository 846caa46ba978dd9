#pragma once
/// @file
/// Sums over rows into fp32 columns, in an order that depends on the shape alone: a partial sum
/// per row group (column_sum_groups) goes to the workspace, a second kernel adds the partials.

#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {

inline constexpr int kColumnSumWarps = 8;

/// A Source has kSums (results per column) and add(row, column, sums), which adds the terms of
/// kWidth columns of one row. Block: kColumnSumWarps warps; grid: (row groups, column tiles).
/// partials: [kSums, groups, columns].
template <int kWidth, class Source>
__global__ void column_partials(Source source, Index rows, Index columns, Index rows_per_group,
                                float* partials) {
  constexpr int kSums = Source::kSums;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Index group = blockIdx.x, groups = gridDim.x;
  const Index column = (Index{blockIdx.y} * kWarp + lane) * kWidth;
  const Index first = group * rows_per_group;
  const Index end = first + rows_per_group < rows ? first + rows_per_group : rows;

  float sums[kSums][kWidth] = {};
  if (column < columns)
    for (Index row = first + warp; row < end; row += kColumnSumWarps)
      source.template add<kWidth>(row, column, sums);

  __shared__ float shared[kColumnSumWarps][kWarp * kWidth];
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared[warp][i * kWarp + lane] = sums[sum][i];
    __syncthreads();
    for (int i = warp; i < kWidth; i += kColumnSumWarps) {
      float total = 0;
#pragma unroll
      for (int from = 0; from < kColumnSumWarps; ++from) total += shared[from][i * kWarp + lane];
      if (column < columns) partials[(sum * groups + group) * columns + column + i] = total;
    }
  }
}

/// results[c] (+)= sum of partials[g, c] over g. Block: 32 x 32; grid: tiles of 32 columns.
/// (A function template so that each .cu file that includes it has its own.)
template <bool kAccumulate>
__global__ void finish_column_sums(const float* partials, Index groups, Index columns,
                                   float* results) {
  const Index column = Index{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (Index group = threadIdx.y; group < groups; group += kWarp)
      sum += partials[group * columns + column];

  __shared__ float shared[kWarp][kWarp + 1];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Warp y now adds what the 32 warps found for column y of the tile.
  const float total = warp_sum(shared[threadIdx.x][threadIdx.y]);
  const Index result = Index{blockIdx.x} * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && result < columns)
    results[result] = kAccumulate ? results[result] + total : total;
}

/// results[s][c] (+)= sums of the source over all rows; a null result is skipped. No rows: zeros.
template <int kWidth, class Source>
void column_sums(std::string_view what, StreamHandle stream, const Source& source, Index rows,
                 Index columns, const Workspace& workspace, bool accumulate,
                 float* const (&results)[Source::kSums]) {
  if (columns == 0 || (rows == 0 && accumulate)) return;
  const Index groups = column_sum_groups(rows);
  require(workspace.bytes >= Source::kSums * groups * columns * 4,
          "the workspace of a column sum is too small");
  auto* partials = static_cast<float*>(workspace.data);
  if (groups > 0)
    launch(what, column_partials<kWidth, Source>,
           dim3(static_cast<unsigned>(groups),
                static_cast<unsigned>(ceil_div(columns, kWarp * kWidth))),
           kColumnSumWarps * kWarp, 0, stream, source, rows, columns, ceil_div(rows, groups),
           partials);
  for (int sum = 0; sum < Source::kSums; ++sum)
    if (results[sum] != nullptr)
      launch(what, accumulate ? finish_column_sums<true> : finish_column_sums<false>,
             grid_for(ceil_div(columns, kWarp)), dim3(kWarp, kWarp), 0, stream,
             partials + sum * groups * columns, groups, columns, results[sum]);
}

}  // namespace megatrain::ops::cuda
