#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// A block rotates one token at a time; a thread, kWidth pairs of one head.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) rotate(Rope op) {
  const int half = static_cast<int>(op.head_dim / 2);
  const int pieces = half / kWidth;  // of one head
  const int total = static_cast<int>(op.heads) * pieces;
  for (Index token = blockIdx.x; token < op.tokens; token += gridDim.x) {
    const Index angles = token % op.sequence * half;
    T* first_head = static_cast<T*>(op.x) + token * op.token_stride;
    for (int piece = threadIdx.x; piece < total; piece += kThreads) {
      const int head = piece / pieces, pair = piece % pieces * kWidth;
      T* x = first_head + head * op.head_dim + pair;
      float low[kWidth], high[kWidth];
      load(x, low);
      load(x + half, high);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float cosine = op.cosine[angles + pair + i];
        const float sine = op.inverse ? -op.sine[angles + pair + i] : op.sine[angles + pair + i];
        const float a = low[i], b = high[i];
        low[i] = fmaf(a, cosine, -(b * sine));
        high[i] = fmaf(b, cosine, a * sine);
      }
      store(x, low);
      store(x + half, high);
    }
  }
}

}  // namespace

void rope(StreamHandle stream, const Rope& op) {
  if (op.tokens == 0 || op.heads == 0 || op.head_dim == 0) return;
  with_type_and_width(op.type, {op.x}, {op.head_dim / 2, op.token_stride},
                      [&](auto element, auto width) {
                        launch("rope", rotate<decltype(element), decltype(width)::value>,
                               grid_for(op.tokens), kThreads, 0, stream, op);
                      });
}

}  // namespace megatrain::ops::cuda
