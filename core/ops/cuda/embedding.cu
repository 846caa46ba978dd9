#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) gather(EmbeddingForward op) {
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    const bool here = op.rows.have(op.ids[token]);
    const T* row = static_cast<const T*>(op.table) + (op.ids[token] - op.rows.first) * op.width;
    const T* position = op.positions == nullptr
                            ? nullptr
                            : static_cast<const T*>(op.positions) + token % op.sequence * op.width;
    T* out = static_cast<T*>(op.out) + token * op.width;
    for (Index column = Index{threadIdx.x} * kWidth; column < op.width;
         column += kThreads * kWidth) {
      float values[kWidth] = {};
      if (here) load(row + column, values);
      if (position != nullptr) {
        float shifts[kWidth];
        load(position + column, shifts);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] += shifts[i];
      }
      store(out + column, values);
    }
  }
}

/// A block owns one row of dtable and a tile of kWarp * kWidth columns. A segment of up to kWarps
/// tokens is one warp's; a longer one is shared: warp w adds tokens w, w + kWarps, ..., and the
/// warps' sums are added in their order. So the order depends on the segment's length alone.
/// Grid: (unique rows, column tiles).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) scatter(EmbeddingBackward op) {
  if (!op.rows.have(op.unique[blockIdx.x])) return;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Index column = (Index{blockIdx.y} * kWarp + lane) * kWidth;
  const Index begin = op.begins[blockIdx.x], end = op.begins[blockIdx.x + 1];
  const bool shared_segment = end - begin > kWarps;
  if (!shared_segment && warp > 0) return;  // the whole block takes the same branch below

  const auto* dy = static_cast<const T*>(op.dy);
  float sums[kWidth] = {};
  if (column < op.width) {
    const Index step = shared_segment ? kWarps : 1;
#pragma unroll 4
    for (Index at = begin + warp; at < end; at += step) {
      float values[kWidth];
      load(dy + Index{op.order[at]} * op.width + column, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
    }
  }
  if (shared_segment) {
    __shared__ float partial[kWarps][kWarp * kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) partial[warp][i * kWarp + lane] = sums[i];
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int from = 1; from < kWarps; ++from)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += partial[from][i * kWarp + lane];
  }
  if (column >= op.width) return;
  write_sums(op.dtable + (op.unique[blockIdx.x] - op.rows.first) * op.width + column, sums, true);
}

/// A thread owns kWidth columns of one position and adds the batch in order. Grid: positions.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) positions(PositionBackward op) {
  const auto* dy = static_cast<const T*>(op.dy);
  for (Index at = blockIdx.x; at < op.sequence; at += gridDim.x)
    for (Index column = Index{threadIdx.x} * kWidth; column < op.width;
         column += kThreads * kWidth) {
      float sums[kWidth] = {};
#pragma unroll 4
      for (Index sample = 0; sample < op.batch; ++sample) {
        float values[kWidth];
        load(dy + (sample * op.sequence + at) * op.width + column, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
      }
      write_sums(op.dpositions + at * op.width + column, sums, op.accumulate);
    }
}

}  // namespace

void embedding_forward(StreamHandle stream, const EmbeddingForward& op) {
  if (op.tokens == 0 || op.width == 0) return;
  with_type_and_width(
      op.type, {op.table, op.positions, op.out}, {op.width}, [&](auto element, auto width) {
        launch("embedding forward", gather<decltype(element), decltype(width)::value>,
               grid_for(op.tokens), kThreads, 0, stream, op);
      });
}

void embedding_backward(StreamHandle stream, const EmbeddingBackward& op) {
  if (op.uniques == 0 || op.width == 0) return;
  with_type_and_width(op.type, {op.dy, op.dtable}, {op.width}, [&](auto element, auto width) {
    constexpr int kWidth = decltype(width)::value;
    launch("embedding backward", scatter<decltype(element), kWidth>,
           dim3(static_cast<unsigned>(op.uniques),
                static_cast<unsigned>(ceil_div(op.width, kWarp * kWidth))),
           kThreads, 0, stream, op);
  });
}

void position_backward(StreamHandle stream, const PositionBackward& op) {
  if (op.sequence == 0 || op.width == 0) return;
  with_type_and_width(op.type, {op.dy, op.dpositions}, {op.width}, [&](auto element, auto width) {
    launch("position backward", positions<decltype(element), decltype(width)::value>,
           grid_for(op.sequence), kThreads, 0, stream, op);
  });
}

}  // namespace megatrain::ops::cuda
