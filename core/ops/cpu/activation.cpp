#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

template <class T>
void swiglu_forward_of(const SwigluForward& op, Range rows) {
  for (Index r = rows.begin; r < rows.end; ++r) {
    const T* gate = static_cast<const T*>(op.gate) + r * op.in_stride;
    const T* up = static_cast<const T*>(op.up) + r * op.in_stride;
    T* y = static_cast<T*>(op.y) + r * op.columns;
    for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
      const FloatVec g = load(gate + c, span);
      const FloatVec silu = hn::Mul(g, logistic(g).value);
      store(hn::Mul(silu, load(up + c, span)), y + c, span);
    });
  }
}

template <class T>
void swiglu_backward_of(const SwigluBackward& op, Range rows) {
  const FloatVec one = hn::Set(Floats(), 1.0F);
  for (Index r = rows.begin; r < rows.end; ++r) {
    T* gate = static_cast<T*>(op.gate) + r * op.in_stride;
    T* up = static_cast<T*>(op.up) + r * op.in_stride;
    const T* dy = static_cast<const T*>(op.dy) + r * op.columns;
    for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
      const FloatVec g = load(gate + c, span);
      const FloatVec d = load(dy + c, span);
      const Logistic s = logistic(g);
      // silu'(g) = s + g s (1 - s)
      const FloatVec slope = hn::Mul(s.value, hn::MulAdd(g, s.complement, one));
      store(hn::Mul(hn::Mul(d, load(up + c, span)), slope), gate + c, span);
      store(hn::Mul(d, hn::Mul(g, s.value)), up + c, span);
    });
  }
}

/// gelu_tanh(x) = x/2 (1 + tanh u) = x logistic(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

HWY_INLINE Logistic gelu_gate(FloatVec x) {
  const Floats d;
  const FloatVec cubic = hn::MulAdd(hn::Mul(hn::Set(d, kCubic), hn::Mul(x, x)), x, x);
  return logistic(hn::Mul(hn::Set(d, kTwoRootTwoOverPi), cubic));
}

template <class T>
void gelu_forward_of(const GeluForward& op, Range range) {
  const T* x = static_cast<const T*>(op.x) + range.begin;
  T* y = static_cast<T*>(op.y) + range.begin;
  for_lanes(range.end - range.begin, [&](Index i, auto span) HWY_ATTR {
    const FloatVec v = load(x + i, span);
    store(hn::Mul(v, gelu_gate(v).value), y + i, span);
  });
}

template <class T>
void gelu_backward_of(const GeluBackward& op, Range range) {
  const Floats d;
  T* x = static_cast<T*>(op.x) + range.begin;
  const T* dy = static_cast<const T*>(op.dy) + range.begin;
  for_lanes(range.end - range.begin, [&](Index i, auto span) HWY_ATTR {
    const FloatVec v = load(x + i, span);
    const Logistic s = gelu_gate(v);
    // d(2u)/dx = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2)
    const FloatVec inner =
        hn::Mul(hn::Set(d, kTwoRootTwoOverPi),
                hn::MulAdd(hn::Set(d, 3.0F * kCubic), hn::Mul(v, v), hn::Set(d, 1.0F)));
    // s (1 - s) is 0 before anything overflows, so it comes first.
    const FloatVec bend = hn::Mul(hn::Mul(hn::Mul(s.value, s.complement), v), inner);
    store(hn::Mul(load(dy + i, span), hn::Add(s.value, bend)), x + i, span);
  });
}

void swiglu_forward_rows(const SwigluForward& op, Range rows) {
  op.type == DType::f32 ? swiglu_forward_of<float>(op, rows)
                        : swiglu_forward_of<bfloat16>(op, rows);
}
void swiglu_backward_rows(const SwigluBackward& op, Range rows) {
  op.type == DType::f32 ? swiglu_backward_of<float>(op, rows)
                        : swiglu_backward_of<bfloat16>(op, rows);
}
void gelu_forward_range(const GeluForward& op, Range range) {
  op.type == DType::f32 ? gelu_forward_of<float>(op, range) : gelu_forward_of<bfloat16>(op, range);
}
void gelu_backward_range(const GeluBackward& op, Range range) {
  op.type == DType::f32 ? gelu_backward_of<float>(op, range)
                        : gelu_backward_of<bfloat16>(op, range);
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {
HWY_EXPORT(swiglu_forward_rows);
HWY_EXPORT(swiglu_backward_rows);
HWY_EXPORT(gelu_forward_range);
HWY_EXPORT(gelu_backward_range);
}  // namespace

void swiglu_forward(OpState& /*state*/, Stream& stream, const SwigluForward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index row = op.columns * size_of(op.type);
    const Index pitch = op.in_stride * size_of(op.type);
    announce_read(op.gate, op.rows, row, pitch);
    announce_read(op.up, op.rows, row, pitch);
    announce_write(op.y, op.rows * row);
    for_pieces(own.pool(), row_pieces(op.rows, op.columns),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(swiglu_forward_rows)(op, rows); });
  });
}

void swiglu_backward(OpState& /*state*/, Stream& stream, const SwigluBackward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index row = op.columns * size_of(op.type);
    const Index pitch = op.in_stride * size_of(op.type);
    announce_write(op.gate, op.rows, row, pitch);
    announce_write(op.up, op.rows, row, pitch);
    announce_read(op.dy, op.rows * row);
    for_pieces(own.pool(), row_pieces(op.rows, op.columns),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(swiglu_backward_rows)(op, rows); });
  });
}

void gelu_forward(OpState& /*state*/, Stream& stream, const GeluForward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_read(op.x, op.count * size_of(op.type));
    announce_write(op.y, op.count * size_of(op.type));
    for_pieces(own.pool(), Pieces{op.count, kPieceElements},
               [&](Range range) { HWY_DYNAMIC_DISPATCH(gelu_forward_range)(op, range); });
  });
}

void gelu_backward(OpState& /*state*/, Stream& stream, const GeluBackward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_write(op.x, op.count * size_of(op.type));
    announce_read(op.dy, op.count * size_of(op.type));
    for_pieces(own.pool(), Pieces{op.count, kPieceElements},
               [&](Range range) { HWY_DYNAMIC_DISPATCH(gelu_backward_range)(op, range); });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
