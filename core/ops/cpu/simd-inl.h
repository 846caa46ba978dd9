/// @file
/// What vectorised kernels share, compiled once per instruction set: fp32 vectors from either
/// storage type, loops over rows, sums. Include after hwy/highway.h.

#if defined(MEGATRAIN_CORE_OPS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_CORE_OPS_CPU_SIMD_INL_H_
#undef MEGATRAIN_CORE_OPS_CPU_SIMD_INL_H_
#else
#define MEGATRAIN_CORE_OPS_CPU_SIMD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstring>

#include "core/base/bfloat16.h"
#include "core/base/types.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;
using HalfWords = hn::Rebind<std::uint16_t, Floats>;
using Words = hn::RebindToUnsigned<Floats>;

/// A full vector, or its first `count` elements: the tail of a row.
struct Whole {};
struct Part {
  Index count;
};

HWY_INLINE FloatVec load(const float* p, Whole /*span*/) { return hn::LoadU(Floats(), p); }

HWY_INLINE FloatVec load(const bfloat16* p, Whole /*span*/) {
  const auto bits = hn::LoadU(HalfWords(), reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
}

HWY_INLINE void store(FloatVec v, float* p, Whole /*span*/) { hn::StoreU(v, Floats(), p); }

/// Rounds to nearest, ties to even, as to_bfloat16.
HWY_INLINE hn::Vec<Words> bfloat16_bits(FloatVec v) {
  const Words d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffU))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x0040U));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
}

HWY_INLINE void store(FloatVec v, bfloat16* p, Whole /*span*/) {
  // Bits are below 2^16: the signed, saturating demotion of every set keeps them.
  const auto bits = hn::BitCast(hn::RebindToSigned<Words>(), bfloat16_bits(v));
  hn::StoreU(hn::DemoteTo(HalfWords(), bits), HalfWords(), reinterpret_cast<std::uint16_t*>(p));
}

/// Tails go through a full vector on the stack; elements beyond `count` are zero.
template <class T>
HWY_INLINE FloatVec load(const T* p, Part span) {
  HWY_ALIGN T whole[hn::MaxLanes(Floats())] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(span.count) * sizeof(T));
  return load(whole, Whole{});
}

template <class T>
HWY_INLINE void store(FloatVec v, T* p, Part span) {
  HWY_ALIGN T whole[hn::MaxLanes(Floats())];
  store(v, whole, Whole{});
  std::memcpy(p, whole, static_cast<std::size_t>(span.count) * sizeof(T));
}

/// The value as storage type T holds it.
template <class T>
HWY_INLINE FloatVec rounded_to(FloatVec v) {
  if constexpr (sizeof(T) == sizeof(float))
    return v;
  else
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(bfloat16_bits(v)));
}

/// Zero in the lanes beyond a tail, so that they add nothing to a sum.
HWY_INLINE FloatVec only(FloatVec v, Whole /*span*/) { return v; }
HWY_INLINE FloatVec only(FloatVec v, Part span) {
  return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<std::size_t>(span.count)), v);
}

/// body(column, span) for every vector of a row of `count` elements.
template <class Body>
HWY_INLINE void for_lanes(Index count, const Body& body) {
  const auto lanes = static_cast<Index>(hn::Lanes(Floats()));
  Index column = 0;
  for (; column + lanes <= count; column += lanes) body(column, Whole{});
  if (column < count) body(column, Part{count - column});
}

HWY_INLINE float sum_of(FloatVec v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }

/// exp(x) for x <= 88; NaN stays NaN, which the library's polynomial does not promise.
HWY_INLINE FloatVec exp_of(FloatVec x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Floats(), x));
}

/// The logistic function and its complement, both without cancellation, for every x.
struct Logistic {
  FloatVec value;       ///< 1 / (1 + exp(-x))
  FloatVec complement;  ///< 1 / (1 + exp(x))
};
HWY_INLINE Logistic logistic(FloatVec x) {
  const Floats d;
  const FloatVec e = exp_of(hn::Neg(hn::Abs(x)));
  const FloatVec large = hn::Div(hn::Set(d, 1.0F), hn::Add(hn::Set(d, 1.0F), e));
  const FloatVec small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
