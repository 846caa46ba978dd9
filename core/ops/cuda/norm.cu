#include "core/ops/cuda/column_sum.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;
/// Rows up to this wide get a warp each instead of a block, which would wait for itself twice a
/// row.
constexpr Index kWarpColumns = 1024;

/// kGroup threads work on a row: a warp or the whole block.
template <int kGroup, class T>
__device__ T group_sum(T value) {
  if constexpr (kGroup == kWarp)
    return warp_sum(value);
  else
    return block_sum<kGroup>(value);
}

template <class T, int kWidth, int kGroup, NormKind kKind>
__global__ void __launch_bounds__(kThreads) forward(NormForward op) {
  constexpr int kRows = kThreads / kGroup;
  const Index lane = threadIdx.x % kGroup;
  const auto* weight = static_cast<const T*>(op.weight);
  const auto* bias = static_cast<const T*>(op.bias);
  const float count = static_cast<float>(op.columns);

  for (Index row = Index{blockIdx.x} * kRows + threadIdx.x / kGroup; row < op.rows;
       row += Index{gridDim.x} * kRows) {
    const T* x = static_cast<const T*>(op.x) + row_offset(op.x_rows, row);
    T* y = static_cast<T*>(op.y) + row_offset(op.y_rows, row);
    float values[kWidth];

    float mean = 0;
    if constexpr (kKind == NormKind::layer) {
      float sum = 0;
      for (Index column = lane * kWidth; column < op.columns; column += kGroup * kWidth) {
        load(x + column, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum += values[i];
      }
      mean = group_sum<kGroup>(sum) / count;
    }

    float squares = 0;
    for (Index column = lane * kWidth; column < op.columns; column += kGroup * kWidth) {
      load(x + column, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float centred = values[i] - mean;
        squares = fmaf(centred, centred, squares);
      }
    }
    const float rstd = 1.0F / sqrtf(group_sum<kGroup>(squares) / count + op.eps);

    // y may be x: an element is read and written by the same thread, after the last sum.
    for (Index column = lane * kWidth; column < op.columns; column += kGroup * kWidth) {
      float scales[kWidth];
      load(x + column, values);
      load(weight + column, scales);
      if constexpr (kKind == NormKind::rms) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] = widen(narrow<T>(values[i] * rstd)) * scales[i];
      } else {
        float shifts[kWidth] = {};
        if (bias != nullptr) load(bias + column, shifts);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          values[i] = fmaf((values[i] - mean) * rstd, scales[i], shifts[i]);
      }
      store(y + column, values);
    }
    if (lane == 0) {
      op.rstd[row] = rstd;
      if constexpr (kKind == NormKind::layer) op.mean[row] = mean;
    }
  }
}

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + add with g = dy * weight; no mean(g) for
/// rms.
template <class T, int kWidth, int kGroup, NormKind kKind>
__global__ void __launch_bounds__(kThreads) input_gradient(NormBackward op) {
  constexpr int kRows = kThreads / kGroup;
  const Index lane = threadIdx.x % kGroup;
  const auto* weight = static_cast<const T*>(op.weight);
  const float count = static_cast<float>(op.columns);

  for (Index row = Index{blockIdx.x} * kRows + threadIdx.x / kGroup; row < op.rows;
       row += Index{gridDim.x} * kRows) {
    const T* x = static_cast<const T*>(op.x) + row_offset(op.x_rows, row);
    const T* dy = static_cast<const T*>(op.dy) + row_offset(op.dy_rows, row);
    const Index dx_offset = row_offset(op.dx_rows, row);
    const T* add = op.add == nullptr ? nullptr : static_cast<const T*>(op.add) + dx_offset;
    T* dx = static_cast<T*>(op.dx) + dx_offset;
    const float rstd = op.rstd[row];
    const float mean = kKind == NormKind::layer ? op.mean[row] : 0.0F;
    float values[kWidth], gradients[kWidth], scales[kWidth];

    float sum = 0, product = 0;
    for (Index column = lane * kWidth; column < op.columns; column += kGroup * kWidth) {
      load(x + column, values);
      load(dy + column, gradients);
      load(weight + column, scales);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float g = gradients[i] * scales[i];
        sum += g;
        product = fmaf(g, (values[i] - mean) * rstd, product);
      }
    }
    const float mean_product = group_sum<kGroup>(product) / count;
    float mean_g = 0;
    if constexpr (kKind == NormKind::layer) mean_g = group_sum<kGroup>(sum) / count;

    // dx may be `add` or dy: an element is read and written by the same thread.
    for (Index column = lane * kWidth; column < op.columns; column += kGroup * kWidth) {
      float residual[kWidth] = {};
      load(x + column, values);
      load(dy + column, gradients);
      load(weight + column, scales);
      if (add != nullptr) load(add + column, residual);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float g = gradients[i] * scales[i];
        const float xhat = (values[i] - mean) * rstd;
        values[i] = fmaf(rstd, fmaf(-xhat, mean_product, g - mean_g), residual[i]);
      }
      store(dx + column, values);
    }
  }
}

/// The terms of dweight (and dbias, when there are two sums).
template <class T, int kCount>
struct WeightTerms {
  static constexpr int kSums = kCount;
  const T* x;
  RowMap x_rows;
  const T* dy;
  RowMap dy_rows;
  const float* rstd;
  const float* mean;  ///< nullptr: none

  template <int kWidth>
  __device__ void add(Index row, Index column, float (&sums)[kSums][kWidth]) const {
    float values[kWidth], gradients[kWidth];
    load(x + row_offset(x_rows, row) + column, values);
    load(dy + row_offset(dy_rows, row) + column, gradients);
    const float scale = rstd[row];
    const float centre = mean == nullptr ? 0.0F : mean[row];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sums[0][i] = fmaf(gradients[i], (values[i] - centre) * scale, sums[0][i]);
      if constexpr (kSums == 2) sums[1][i] += gradients[i];
    }
  }
};

template <class T, int kWidth>
void weight_gradient(StreamHandle stream, const NormBackward& op) {
  const float* mean = op.kind == NormKind::layer ? op.mean : nullptr;
  const auto* x = static_cast<const T*>(op.x);
  const auto* dy = static_cast<const T*>(op.dy);
  if (op.dbias != nullptr)
    column_sums<kWidth>("norm backward", stream,
                        WeightTerms<T, 2>{x, op.x_rows, dy, op.dy_rows, op.rstd, mean}, op.rows,
                        op.columns, op.workspace, op.accumulate, {op.dweight, op.dbias});
  else
    column_sums<kWidth>("norm backward", stream,
                        WeightTerms<T, 1>{x, op.x_rows, dy, op.dy_rows, op.rstd, mean}, op.rows,
                        op.columns, op.workspace, op.accumulate, {op.dweight});
}

/// Calls body(Constant<threads per row>, rows per block).
template <class Body>
void with_group(Index columns, const Body& body) {
  if (columns <= kWarpColumns)
    body(Constant<kWarp>{}, kThreads / kWarp);
  else
    body(Constant<kThreads>{}, 1);
}

}  // namespace

void norm_forward(StreamHandle stream, const NormForward& op) {
  if (op.rows == 0 || op.columns == 0) return;
  with_type_and_width(
      op.type, {op.x, op.y, op.weight, op.bias},
      {op.columns, op.x_rows.outer_stride, op.x_rows.inner_stride, op.y_rows.outer_stride,
       op.y_rows.inner_stride},
      [&](auto element, auto width) {
        with_group(op.columns, [&](auto group, int rows_per_block) {
          using T = decltype(element);
          constexpr int kWidth = decltype(width)::value, kGroup = decltype(group)::value;
          launch("norm forward",
                 op.kind == NormKind::rms ? forward<T, kWidth, kGroup, NormKind::rms>
                                          : forward<T, kWidth, kGroup, NormKind::layer>,
                 grid_for(ceil_div(op.rows, rows_per_block)), kThreads, 0, stream, op);
        });
      });
}

void norm_backward(StreamHandle stream, const NormBackward& op) {
  if (op.columns == 0) return;
  with_type_and_width(
      op.type, {op.x, op.weight, op.dy, op.add, op.dx},
      {op.columns, op.x_rows.outer_stride, op.x_rows.inner_stride, op.dy_rows.outer_stride,
       op.dy_rows.inner_stride, op.dx_rows.outer_stride, op.dx_rows.inner_stride},
      [&](auto element, auto width) {
        using T = decltype(element);
        constexpr int kWidth = decltype(width)::value;
        // First: dx may overwrite dy.
        weight_gradient<T, kWidth>(stream, op);
        if (op.rows == 0) return;
        with_group(op.columns, [&](auto group, int rows_per_block) {
          constexpr int kGroup = decltype(group)::value;
          launch("norm backward",
                 op.kind == NormKind::rms ? input_gradient<T, kWidth, kGroup, NormKind::rms>
                                          : input_gradient<T, kWidth, kGroup, NormKind::layer>,
                 grid_for(ceil_div(op.rows, rows_per_block)), kThreads, 0, stream, op);
        });
      });
}

}  // namespace megatrain::ops::cuda
