// Compiled once for each instruction set: foreach_target.h includes this file again and again.

#include "core/ops/cpu/adamw_kernels.h"

#include <iterator>

#include "core/base/split_master.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/adamw_kernels.cpp"
// They have no fused multiply-add and would never be chosen; not compiling them saves time only.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

// Same bits everywhere needs a true fused multiply-add, IEEE division and square root and
// denormals: not emulated targets, not 32-bit ARM.
#if HWY_NATIVE_FMA && !HWY_ARCH_ARM_V7

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;
using SignedHalves = hn::Rebind<std::int16_t, Floats>;
using Vector = hn::Vec<Floats>;

HWY_INLINE hn::Vec<Words> load_high(const std::uint16_t* from) {
  return hn::ShiftLeft<16>(hn::PromoteTo(Words(), hn::LoadU(Halves(), from)));
}

/// What is kept in one type.
template <bool kBf16>
HWY_INLINE Vector load(const std::byte* from, Index i) {
  if constexpr (kBf16)
    return hn::BitCast(Floats(), load_high(reinterpret_cast<const std::uint16_t*>(from) + i));
  else
    return hn::LoadU(Floats(), reinterpret_cast<const float*>(from) + i);
}

/// random_bits() of core/base/stochastic_rounding.h. @param low  positions, lower 32 bits
HWY_INLINE hn::Vec<Words> random_words(RoundingWords words, hn::Vec<Words> low) {
  const Words d;
  auto bits = hn::Xor(low, hn::Set(d, words.before));
  bits = hn::Mul(hn::Xor(bits, hn::ShiftRight<16>(bits)), hn::Set(d, kFirstMultiplier));
  bits = hn::Xor(bits, hn::Set(d, words.between));
  bits = hn::Mul(hn::Xor(bits, hn::ShiftRight<15>(bits)), hn::Set(d, kSecondMultiplier));
  return hn::Xor(bits, hn::ShiftRight<16>(bits));
}

/// third_number().
HWY_INLINE hn::Vec<Words> third_numbers(hn::Vec<Words> random) {
  const Words d;
  const auto product = hn::Mul(random, hn::Set(d, kThirdNumberFactor));
  return hn::And(hn::Add(hn::ShiftRight<16>(random), product), hn::Set(d, 0xFFFFU));
}

/// round_by_chance(). @param random  below 2^16
HWY_INLINE void store_rounded(std::byte* to, Index i, Vector values, hn::Vec<Words> random) {
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::BitCast(Words(), values), random));
  hn::StoreU(hn::TruncateTo(Halves(), rounded), Halves(), reinterpret_cast<std::uint16_t*>(to) + i);
}

template <MasterFormat kMaster>
HWY_INLINE Vector load_weights(const AdamWSlice& slice, Index i) {
  if constexpr (kMaster == MasterFormat::split) {
    const hn::RebindToSigned<Floats> integers;
    const auto high = load_high(reinterpret_cast<const std::uint16_t*>(slice.weights) + i);
    const auto remainder = hn::PromoteTo(integers, hn::LoadU(SignedHalves(), slice.remainder + i));
    return hn::BitCast(Floats(), hn::Add(high, hn::BitCast(Words(), remainder)));
  } else {
    constexpr bool kBf16 = kMaster == MasterFormat::bf16;
    return load<kBf16>(slice.weights, i);
  }
}

/// @param random  random_bits(), for what is rounded by chance
template <MasterFormat kMaster>
HWY_INLINE void store_weights(const AdamWSlice& slice, Index i, Vector weights,
                              hn::Vec<Words> random) {
  if constexpr (kMaster == MasterFormat::split) {
    const auto bits = hn::BitCast(Words(), weights);
    const auto high = hn::ShiftRight<16>(hn::Add(bits, hn::Set(Words(), 0x8000U)));
    hn::StoreU(hn::TruncateTo(Halves(), high), Halves(),
               reinterpret_cast<std::uint16_t*>(slice.weights) + i);
    hn::StoreU(hn::BitCast(SignedHalves(), hn::TruncateTo(Halves(), bits)), SignedHalves(),
               slice.remainder + i);
  } else if constexpr (kMaster == MasterFormat::bf16) {
    const Vector limit = hn::Set(Floats(), kLargestBfloat16);
    store_rounded(slice.weights, i, hn::Clamp(weights, hn::Neg(limit), limit),
                  third_numbers(random));
  } else {
    hn::StoreU(weights, Floats(), reinterpret_cast<float*>(slice.weights) + i);
  }
}

template <MasterFormat kMaster, bool kBf16Gradient, bool kBf16Moments>
void update(const AdamWSlice& slice, const AdamWCoefficients& c) {
  const Floats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Vector clip = hn::Set(d, c.clip);
  const Vector decay = hn::Set(d, c.decay);
  const Vector one_minus_beta1 = hn::Set(d, c.one_minus_beta1);
  const Vector beta2 = hn::Set(d, c.beta2);
  const Vector one_minus_beta2 = hn::Set(d, c.one_minus_beta2);
  const Vector step_size = hn::Set(d, c.step_size);
  const Vector inv_sqrt_bc2 = hn::Set(d, c.inv_sqrt_bc2);
  const Vector eps = hn::Set(d, c.eps);
  const Vector limit = hn::Set(d, kLargestMaster);
  const RoundingWords words = rounding_words(c.rounding_key, slice.position);
  // Positions go through memory where they are made: once, not in the loop.
  auto low = hn::Iota(Words(), static_cast<std::uint32_t>(slice.position));

  Index i = 0;
  for (; i + lanes <= slice.count; i += lanes) {
    const Vector g = hn::Mul(clip, load<kBf16Gradient>(slice.gradient, i));
    Vector m = load<kBf16Moments>(slice.exp_avg, i);
    Vector v = load<kBf16Moments>(slice.exp_avg_sq, i);
    Vector p = hn::Mul(load_weights<kMaster>(slice, i), decay);

    m = hn::MulAdd(one_minus_beta1, hn::Sub(g, m), m);
    v = hn::MulAdd(one_minus_beta2, hn::Mul(g, g), hn::Mul(beta2, v));
    const Vector denominator = hn::MulAdd(hn::Sqrt(v), inv_sqrt_bc2, eps);
    p = hn::NegMulAdd(step_size, hn::Div(m, denominator), p);
    p = hn::Clamp(p, hn::Neg(limit), limit);

    auto random = hn::Zero(Words());
    if constexpr (kBf16Moments || kMaster == MasterFormat::bf16) {
      random = random_words(words, low);
      low = hn::Add(low, hn::Set(Words(), static_cast<std::uint32_t>(lanes)));
    }
    if constexpr (kBf16Moments) {
      store_rounded(slice.exp_avg, i, m, hn::And(random, hn::Set(Words(), 0xFFFFU)));
      v = hn::Min(v, hn::Set(d, kLargestBfloat16));
      store_rounded(slice.exp_avg_sq, i, v, hn::ShiftRight<16>(random));
    } else {
      hn::StoreU(m, d, reinterpret_cast<float*>(slice.exp_avg) + i);
      hn::StoreU(v, d, reinterpret_cast<float*>(slice.exp_avg_sq) + i);
    }
    store_weights<kMaster>(slice, i, p, random);
  }
  adamw_update_portable(slice.part(i, slice.count - i), c);
}

template <MasterFormat kMaster, bool kBf16Gradient>
void update_moments(const AdamWSlice& slice, const AdamWCoefficients& c) {
  slice.for_each_run([&](const AdamWSlice& run) {
    slice.moment_type == DType::bf16 ? update<kMaster, kBf16Gradient, true>(run, c)
                                     : update<kMaster, kBf16Gradient, false>(run, c);
  });
}

template <MasterFormat kMaster>
void update_masters(const AdamWSlice& slice, const AdamWCoefficients& c) {
  slice.gradient_type == DType::bf16 ? update_moments<kMaster, true>(slice, c)
                                     : update_moments<kMaster, false>(slice, c);
}

void update_any(const AdamWSlice& slice, const AdamWCoefficients& c) {
  with_format(slice.master,
              [&](auto master) { update_masters<decltype(master)::value>(slice, c); });
}

AdamWFunction vector_kernel() { return &update_any; }

#else

AdamWFunction vector_kernel() { return nullptr; }

#endif

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

HWY_EXPORT(vector_kernel);

std::vector<AdamWKernel> adamw_kernels() {
  const auto& table = HWY_DISPATCH_TABLE(vector_kernel);
  std::vector<AdamWKernel> kernels;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::ChosenTarget chosen;
    chosen.Update(target);
    // Where the compiler flags leave a single target, the table is that one entry.
    const AdamWFunction function = table[std::size(table) == 1 ? 0 : chosen.GetIndex()]();
    if (function) kernels.push_back({hwy::TargetName(target), function});
  }
  kernels.push_back({"portable", &adamw_update_portable});
  return kernels;
}

const AdamWKernel& best_adamw_kernel() {
  static const AdamWKernel kBest = adamw_kernels().front();
  return kBest;
}

}  // namespace megatrain::ops::cpu
#endif
