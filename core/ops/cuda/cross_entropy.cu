#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 512;

/// Calls wide(first column) for every aligned 16-byte piece of the row that is this thread's and
/// one(column) for the elements before and after them: rows of an odd vocabulary start anywhere.
template <class T, class Wide, class One>
__device__ void for_each_piece(const T* row, Index columns, const Wide& wide, const One& one) {
  constexpr Index kWidth = kWide<T>;
  const Index misaligned =
      static_cast<Index>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
  Index head = misaligned == 0 ? 0 : kWidth - misaligned;
  if (head > columns) head = columns;
  const Index tail = head + (columns - head) / kWidth * kWidth;
  if (threadIdx.x < head) one(Index{threadIdx.x});
  for (Index column = head + Index{threadIdx.x} * kWidth; column < tail;
       column += kThreads * kWidth)
    wide(column);
  if (tail + threadIdx.x < columns) one(tail + Index{threadIdx.x});
}

/// The sum of exp(x - maximum) over the elements seen so far.
struct OnlineSum {
  float maximum = -INFINITY, sum = 0;

  template <int kWidth>
  __device__ void add(const float (&values)[kWidth]) {
    float largest = maximum;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) largest = fmaxf(largest, values[i]);
    if (largest > maximum) {
      sum *= expf(maximum - largest);  // 0 at the first piece: exp(-inf)
      maximum = largest;
    }
    // A NaN passes through the sum; minus infinity against a maximum of minus infinity is nothing.
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      sum += values[i] == -INFINITY ? 0.0F : expf(values[i] - maximum);
  }
};

/// One row (token) at a time and block.
template <class T>
__global__ void __launch_bounds__(kThreads) loss_and_gradient(CrossEntropy op) {
  constexpr int kWidth = kWide<T>;
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    T* row = static_cast<T*>(op.logits) + token * op.stride;
    const Index target = op.targets[token];
    if (target < 0) {
      if (threadIdx.x == 0) op.losses[token] = 0;
      if (op.gradient)
        for_each_piece(
            row, op.vocabulary,
            [&](Index column) {
              const float zeros[kWidth] = {};
              store(row + column, zeros);
            },
            [&](Index column) { row[column] = narrow<T>(0.0F); });
      continue;
    }

    const float target_logit = widen(row[target]);  // before the gradient overwrites it
    OnlineSum seen;
    for_each_piece(
        row, op.vocabulary,
        [&](Index column) {
          float values[kWidth];
          load(row + column, values);
          seen.add(values);
        },
        [&](Index column) {
          const float value[1] = {widen(row[column])};
          seen.add(value);
        });
    const float maximum = block_max<kThreads>(seen.maximum);
    const float own = seen.sum == 0.0F ? 0.0F : seen.sum * expf(seen.maximum - maximum);
    const float sum = block_sum<kThreads>(own);
    if (threadIdx.x == 0) op.losses[token] = (maximum - target_logit) + logf(sum);
    if (!op.gradient) continue;

    const float inverse = 1.0F / sum;
    const auto slope = [&](float value, Index column) {
      const float probability = expf(value - maximum) * inverse;
      return (column == target ? probability - 1.0F : probability) * op.scale;
    };
    for_each_piece(
        row, op.vocabulary,
        [&](Index column) {
          float values[kWidth];
          load(row + column, values);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) values[i] = slope(values[i], column + i);
          store(row + column, values);
        },
        [&](Index column) { row[column] = narrow<T>(slope(widen(row[column]), column)); });
  }
}

}  // namespace

void cross_entropy(StreamHandle stream, const CrossEntropy& op) {
  if (op.tokens == 0 || op.vocabulary == 0) return;
  with_type(op.type, [&](auto element) {
    launch("cross entropy", loss_and_gradient<decltype(element)>, grid_for(op.tokens), kThreads, 0,
           stream, op);
  });
}

}  // namespace megatrain::ops::cuda
