#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// A block works on one chunk at a time: the squares of fp32 values are exact in fp64, so only the
/// additions round.
template <class Wire, int kWidth>
__global__ void __launch_bounds__(kThreads) reduce(ReduceGradient op) {
  auto* wire = static_cast<Wire*>(op.wire);
  const Index chunks = (op.count + kNormChunk - 1) / kNormChunk;
  for (Index chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Index begin = chunk * kNormChunk;
    const Index end = begin + kNormChunk < op.count ? begin + kNormChunk : op.count;
    double sum = 0;
    const Index whole = begin + (end - begin) / kWidth * kWidth;
#pragma unroll 4
    for (Index at = begin + Index{threadIdx.x} * kWidth; at < whole; at += kThreads * kWidth) {
      float values[kWidth];
      load(op.gradient + at, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const double value = op.uncounted.have(at + i) ? 0.0 : double{values[i]};
        sum = fma(value, value, sum);
      }
      store(wire + at, values);
    }
    const Index at = whole + threadIdx.x;  // what does not fill a 16-byte access
    if (at < end) {
      const float value = op.gradient[at];
      if (!op.uncounted.have(at)) sum = fma(double{value}, double{value}, sum);
      wire[at] = narrow<Wire>(value);
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) op.partials[chunk] = sum;
  }
}

}  // namespace

void reduce_gradient(StreamHandle stream, const ReduceGradient& op) {
  if (op.count == 0) return;
  const dim3 grid = grid_for(norm_partials(op.count));
  with_type(op.wire_type, [&](auto element) {
    using Wire = decltype(element);
    if (allows_wide<float>({op.gradient, op.wire}, {}))
      launch("reduce gradient", reduce<Wire, 4>, grid, kThreads, 0, stream, op);
    else
      launch("reduce gradient", reduce<Wire, 1>, grid, kThreads, 0, stream, op);
  });
}

}  // namespace megatrain::ops::cuda
