#include "core/ops/cuda/column_sum.cuh"

namespace megatrain::ops::cuda {
namespace {

template <class T>
struct RowTerms {
  static constexpr int kSums = 1;
  const T* dy;
  Index pitch;

  template <int kWidth>
  __device__ void add(Index row, Index column, float (&sums)[kSums][kWidth]) const {
    float values[kWidth];
    load(dy + row * pitch + column, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[0][i] += values[i];
  }
};

}  // namespace

void bias_gradient(StreamHandle stream, const BiasGradient& op) {
  with_type_and_width(op.type, {op.dy}, {op.columns, op.ld}, [&](auto element, auto width) {
    using T = decltype(element);
    column_sums<decltype(width)::value>("bias gradient", stream,
                                        RowTerms<T>{static_cast<const T*>(op.dy), op.ld}, op.rows,
                                        op.columns, op.workspace, op.accumulate, {op.db});
  });
}

}  // namespace megatrain::ops::cuda
