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

template <class T>
__device__ void write_zeros(T* row, Index columns) {
  constexpr int kWidth = kWide<T>;
  for_each_piece(
      row, columns,
      [&](Index column) {
        const float zeros[kWidth] = {};
        store(row + column, zeros);
      },
      [&](Index column) { row[column] = narrow<T>(0.0F); });
}

/// The largest value of a row, and the sum of exp(x - maximum); the block's threads agree.
struct RowSum {
  float maximum, sum;
};
template <class T>
__device__ RowSum sum_row(const T* row, Index columns) {
  constexpr int kWidth = kWide<T>;
  OnlineSum seen;
  for_each_piece(
      row, columns,
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
  return {maximum, block_sum<kThreads>(own)};
}

/// row = (softmax(row) - onehot(target)) * scale; a target outside the row is none of it.
template <class T>
__device__ void write_slopes(T* row, Index columns, Index target, float maximum, float sum,
                             float scale) {
  constexpr int kWidth = kWide<T>;
  const float inverse = 1.0F / sum;
  const auto slope = [&](float value, Index column) {
    const float probability = expf(value - maximum) * inverse;
    return (column == target ? probability - 1.0F : probability) * scale;
  };
  for_each_piece(
      row, columns,
      [&](Index column) {
        float values[kWidth];
        load(row + column, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] = slope(values[i], column + i);
        store(row + column, values);
      },
      [&](Index column) { row[column] = narrow<T>(slope(widen(row[column]), column)); });
}

/// One row (token) at a time and block.
template <class T>
__global__ void __launch_bounds__(kThreads) loss_and_gradient(CrossEntropy op) {
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    T* row = static_cast<T*>(op.logits) + token * op.stride;
    const Index target = op.targets[token];
    if (target < 0) {
      if (threadIdx.x == 0) op.losses[token] = 0;
      if (op.gradient) write_zeros(row, op.vocabulary);
      continue;
    }

    const float target_logit = widen(row[target]);  // before the gradient overwrites it
    const RowSum all = sum_row(row, op.vocabulary);
    const float maximum = all.maximum, sum = all.sum;
    if (threadIdx.x == 0) op.losses[token] = (maximum - target_logit) + logf(sum);
    if (!op.gradient) continue;

    write_slopes(row, op.vocabulary, target, maximum, sum, op.scale);
  }
}

/// As above, of a part of the vocabulary.
template <class T>
__global__ void __launch_bounds__(kThreads) statistics(LogitStatistics op) {
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    const T* row = static_cast<const T*>(op.logits) + token * op.stride;
    const Index target = op.targets[token] - op.first;
    const bool here = op.targets[token] >= 0 && target >= 0 && target < op.vocabulary;
    const RowSum all = sum_row(row, op.vocabulary);
    if (threadIdx.x > 0) continue;
    op.statistics[token] = all.maximum;
    op.statistics[op.tokens + token] = all.sum;
    op.statistics[2 * op.tokens + token] = here ? widen(row[target]) : 0.0F;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) loss_and_gradient_of_part(CrossEntropyOfPart op) {
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    T* row = static_cast<T*>(op.logits) + token * op.stride;
    if (op.targets[token] < 0) {
      if (threadIdx.x == 0) op.losses[token] = 0;
      if (op.gradient) write_zeros(row, op.columns);
      continue;
    }
    // Every thread does the same few additions, in the order of the parts.
    const auto statistic = [&](Index part, Index which) {
      return op.statistics[(part * kLogitStatistics + which) * op.tokens + token];
    };
    float maximum = statistic(0, 0);
    for (Index part = 1; part < op.parts; ++part) maximum = fmaxf(maximum, statistic(part, 0));
    float sum = 0, target_logit = 0;
    for (Index part = 0; part < op.parts; ++part) {
      // A part without ids has a sum of zero and a maximum of minus infinity.
      const float own = statistic(part, 1);
      sum += own == 0.0F ? 0.0F : own * expf(statistic(part, 0) - maximum);
      target_logit += statistic(part, 2);
    }
    if (threadIdx.x == 0) op.losses[token] = (maximum - target_logit) + logf(sum);
    if (!op.gradient) continue;
    write_slopes(row, op.vocabulary, op.targets[token] - op.first, maximum, sum, op.scale);
    write_zeros(row + op.vocabulary, op.columns - op.vocabulary);
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

void logit_statistics(StreamHandle stream, const LogitStatistics& op) {
  if (op.tokens == 0) return;
  with_type(op.type, [&](auto element) {
    launch("logit statistics", statistics<decltype(element)>, grid_for(op.tokens), kThreads, 0,
           stream, op);
  });
}

void cross_entropy_of_part(StreamHandle stream, const CrossEntropyOfPart& op) {
  if (op.tokens == 0) return;
  with_type(op.type, [&](auto element) {
    launch("cross entropy of a part", loss_and_gradient_of_part<decltype(element)>,
           grid_for(op.tokens), kThreads, 0, stream, op);
  });
}

}  // namespace megatrain::ops::cuda
