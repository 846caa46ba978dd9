#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// The fast division is within 2 ulp, and 0 where exp(-x) is infinite.
__device__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

/// Calls body(row, column) for the pieces of kWidth columns that are this thread's.
/// Grid: (rows, column tiles of kThreads * kWidth).
template <int kWidth, class Body>
__device__ void for_each_piece(Index rows, Index columns, const Body& body) {
  const Index column = (Index{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  if (column >= columns) return;
  for (Index row = blockIdx.x; row < rows; row += gridDim.x) body(row, column);
}

template <int kWidth>
dim3 grid_of_pieces(Index rows, Index columns) {
  dim3 grid = grid_for(rows);
  grid.y = static_cast<unsigned>(ceil_div(columns, kThreads * kWidth));
  return grid;
}

/// Calls wide(index) for the 16-byte pieces of a flat array that are this thread's, one(index) for
/// the elements at the end that do not fill one.
template <int kWidth, class Wide, class One>
__device__ void for_each_element(Index count, const Wide& wide, const One& one) {
  const Index whole = count / kWidth * kWidth;
  for (Index at = (Index{blockIdx.x} * kThreads + threadIdx.x) * kWidth; at < whole;
       at += Index{gridDim.x} * kThreads * kWidth)
    wide(at);
  if (blockIdx.x == 0 && whole + threadIdx.x < count) one(whole + threadIdx.x);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_values(SwigluForward op) {
  for_each_piece<kWidth>(op.rows, op.columns, [&](Index row, Index column) {
    const Index from = row * op.in_stride + column;
    float gate[kWidth], up[kWidth];
    load(static_cast<const T*>(op.gate) + from, gate);
    load(static_cast<const T*>(op.up) + from, up);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) up[i] *= gate[i] * sigmoid(gate[i]);
    store(static_cast<T*>(op.y) + row * op.columns + column, up);
  });
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_gradient(SwigluBackward op) {
  for_each_piece<kWidth>(op.rows, op.columns, [&](Index row, Index column) {
    const Index from = row * op.in_stride + column;
    float gate[kWidth], up[kWidth], dy[kWidth];
    load(static_cast<T*>(op.gate) + from, gate);
    load(static_cast<T*>(op.up) + from, up);
    load(static_cast<const T*>(op.dy) + row * op.columns + column, dy);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = gate[i], s = sigmoid(g);
      // silu'(g) = s * (1 + g * (1 - s))
      gate[i] = dy[i] * up[i] * (s * fmaf(g, 1.0F - s, 1.0F));
      up[i] = dy[i] * (g * s);
    }
    store(static_cast<T*>(op.gate) + from, gate);
    store(static_cast<T*>(op.up) + from, up);
  });
}

constexpr float kRootTwoOverPi = 0.7978845608028654F;
constexpr float kCubic = 0.044715F;

/// (1 + tanh(u)) / 2 is sigmoid(2u), which keeps its digits where the tanh is near -1.
__device__ float gelu_gate(float x) {
  return sigmoid(2.0F * kRootTwoOverPi * x * fmaf(kCubic * x, x, 1.0F));
}

__device__ float gelu(float x) { return x * gelu_gate(x); }

__device__ float gelu_slope(float x) {
  const float s = gelu_gate(x);
  const float inner = 2.0F * kRootTwoOverPi * fmaf(3.0F * kCubic * x, x, 1.0F);
  return s * fmaf(x * (1.0F - s), inner, 1.0F);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) gelu_values(GeluForward op) {
  const auto* x = static_cast<const T*>(op.x);
  auto* y = static_cast<T*>(op.y);
  for_each_element<kWidth>(
      op.count,
      [&](Index at) {
        float values[kWidth];
        load(x + at, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] = gelu(values[i]);
        store(y + at, values);
      },
      [&](Index at) { y[at] = narrow<T>(gelu(widen(x[at]))); });
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) gelu_gradient(GeluBackward op) {
  auto* x = static_cast<T*>(op.x);
  const auto* dy = static_cast<const T*>(op.dy);
  for_each_element<kWidth>(
      op.count,
      [&](Index at) {
        float values[kWidth], gradients[kWidth];
        load(x + at, values);
        load(dy + at, gradients);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) values[i] = gradients[i] * gelu_slope(values[i]);
        store(x + at, values);
      },
      [&](Index at) { x[at] = narrow<T>(widen(dy[at]) * gelu_slope(widen(x[at]))); });
}

}  // namespace

void swiglu_forward(StreamHandle stream, const SwigluForward& op) {
  if (op.rows == 0 || op.columns == 0) return;
  with_type_and_width(
      op.type, {op.gate, op.up, op.y}, {op.columns, op.in_stride}, [&](auto element, auto width) {
        constexpr int kWidth = decltype(width)::value;
        launch("swiglu forward", swiglu_values<decltype(element), kWidth>,
               grid_of_pieces<kWidth>(op.rows, op.columns), kThreads, 0, stream, op);
      });
}

void swiglu_backward(StreamHandle stream, const SwigluBackward& op) {
  if (op.rows == 0 || op.columns == 0) return;
  with_type_and_width(
      op.type, {op.gate, op.up, op.dy}, {op.columns, op.in_stride}, [&](auto element, auto width) {
        constexpr int kWidth = decltype(width)::value;
        launch("swiglu backward", swiglu_gradient<decltype(element), kWidth>,
               grid_of_pieces<kWidth>(op.rows, op.columns), kThreads, 0, stream, op);
      });
}

void gelu_forward(StreamHandle stream, const GeluForward& op) {
  if (op.count == 0) return;
  with_type_and_width(op.type, {op.x, op.y}, {}, [&](auto element, auto width) {
    constexpr int kWidth = decltype(width)::value;
    launch("gelu forward", gelu_values<decltype(element), kWidth>,
           grid_for(ceil_div(op.count, kThreads * kWidth)), kThreads, 0, stream, op);
  });
}

void gelu_backward(StreamHandle stream, const GeluBackward& op) {
  if (op.count == 0) return;
  with_type_and_width(op.type, {op.x, op.dy}, {}, [&](auto element, auto width) {
    constexpr int kWidth = decltype(width)::value;
    launch("gelu backward", gelu_gradient<decltype(element), kWidth>,
           grid_for(ceil_div(op.count, kThreads * kWidth)), kThreads, 0, stream, op);
  });
}

}  // namespace megatrain::ops::cuda
