#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

template <class T>
void rotate_tokens_of(const Rope& op, Range tokens) {
  const Index half = op.head_dim / 2;
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    const float* cosine = op.cosine + t % op.sequence * half;
    const float* sine = op.sine + t % op.sequence * half;
    for (Index h = 0; h < op.heads; ++h) {
      T* first = static_cast<T*>(op.x) + t * op.token_stride + h * op.head_dim;
      T* second = first + half;
      for_lanes(half, [&](Index i, auto span) HWY_ATTR {
        const FloatVec c = load(cosine + i, span);
        const FloatVec s = load(sine + i, span);
        const FloatVec signed_s = op.inverse ? hn::Neg(s) : s;
        const FloatVec a = load(first + i, span);
        const FloatVec b = load(second + i, span);
        store(hn::NegMulAdd(b, signed_s, hn::Mul(a, c)), first + i, span);
        store(hn::MulAdd(a, signed_s, hn::Mul(b, c)), second + i, span);
      });
    }
  }
}

void rotate_tokens(const Rope& op, Range tokens) {
  if (op.type == DType::f32)
    rotate_tokens_of<float>(op, tokens);
  else
    rotate_tokens_of<bfloat16>(op, tokens);
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {
HWY_EXPORT(rotate_tokens);
}

void rope(OpState& /*state*/, Stream& stream, const Rope& op) {
  require(op.head_dim % 2 == 0, "rotary embedding needs an even head size");
  require(op.sequence > 0 || op.tokens == 0, "rotary embedding needs a sequence length");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index size = size_of(op.type);
    const Index table = std::min(op.tokens, op.sequence) * op.head_dim / 2 * 4;
    announce_read(op.cosine, table);
    announce_read(op.sine, table);
    announce_write(op.x, op.tokens, op.heads * op.head_dim * size, op.token_stride * size);
    for_pieces(own.pool(), row_pieces(op.tokens, op.heads * op.head_dim),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(rotate_tokens)(op, rows); });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
