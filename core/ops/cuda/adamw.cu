#include "core/base/split_master.h"
#include "core/ops/cuda/device_math.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;
/// Elements a thread takes at once where alignment allows: 16 bytes of the narrowest array.
constexpr int kTogether = 8;

/// One element, operation for operation what the host's kernels do (core/ops/adamw.h).
__device__ void update_element(const AdamWCoefficients& c, float gradient, float& p, float& m,
                               float& v) {
  const float g = c.clip * gradient;
  p = p * c.decay;
  m = fmaf(c.one_minus_beta1, g - m, m);
  v = fmaf(c.one_minus_beta2, g * g, c.beta2 * v);
  const float denominator = fmaf(__fsqrt_rn(v), c.inv_sqrt_bc2, c.eps);
  p = fmaf(-c.step_size, __fdiv_rn(m, denominator), p);
  p = fminf(fmaxf(p, -kLargestMaster), kLargestMaster);
}

/// Moments of kWidth elements as they are kept. @param random  of each element, below 2^16
template <int kWidth>
__device__ void store_moments(float* to, const float (&values)[kWidth],
                              const std::uint32_t (&)[kWidth]) {
  store(to, values);
}
template <int kWidth>
__device__ void store_moments(bf16* to, const float (&values)[kWidth],
                              const std::uint32_t (&random)[kWidth]) {
  Pack<std::uint16_t, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) rounded.values[i] = round_by_chance(values[i], random[i]).bits;
  *reinterpret_cast<Pack<std::uint16_t, kWidth>*>(to) = rounded;
}

/// @param words  hold for every element of the slice
template <bool kSplit, class Gradient, class Moment, int kWidth>
__global__ void __launch_bounds__(kThreads) update(AdamWSlice slice, AdamWCoefficients coefficients,
                                                   RoundingWords words, Index first, Index count) {
  const Index stride = Index{gridDim.x} * kThreads * kWidth;
  const auto* gradients = reinterpret_cast<const Gradient*>(slice.gradient);
  auto* first_moments = reinterpret_cast<Moment*>(slice.exp_avg);
  auto* second_moments = reinterpret_cast<Moment*>(slice.exp_avg_sq);
  auto* full = reinterpret_cast<float*>(slice.weights);
  auto* high = reinterpret_cast<std::uint16_t*>(slice.weights);
  using Highs = Pack<std::uint16_t, kWidth>;
  using Remainders = Pack<std::int16_t, kWidth>;
  for (Index at = first + (Index{blockIdx.x} * kThreads + threadIdx.x) * kWidth; at < first + count;
       at += stride) {
    float p[kWidth], m[kWidth], v[kWidth], g[kWidth];
    load(gradients + at, g);
    load(first_moments + at, m);
    load(second_moments + at, v);
    Highs highs;
    Remainders remainders;
    if constexpr (kSplit) {
      highs = *reinterpret_cast<const Highs*>(high + at);
      remainders = *reinterpret_cast<const Remainders*>(slice.remainder + at);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        p[i] = join_master({{highs.values[i]}, remainders.values[i]});
    } else {
      load(full + at, p);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) update_element(coefficients, g[i], p[i], m[i], v[i]);
    std::uint32_t for_first[kWidth] = {}, for_second[kWidth] = {};
    if constexpr (sizeof(Moment) == 2) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const std::uint32_t random =
            random_bits(words, static_cast<std::uint32_t>(slice.position + at + i));
        for_first[i] = random & 0xFFFFU;
        for_second[i] = random >> 16;
        v[i] = fminf(v[i], kLargestBfloat16);
      }
    }
    store_moments(first_moments + at, m, for_first);
    store_moments(second_moments + at, v, for_second);
    if constexpr (kSplit) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const SplitMaster split = split_master(p[i]);
        highs.values[i] = split.high.bits;
        remainders.values[i] = split.remainder;
      }
      *reinterpret_cast<Highs*>(high + at) = highs;
      *reinterpret_cast<Remainders*>(slice.remainder + at) = remainders;
    } else {
      store(full + at, p);
    }
  }
}

/// Elements [first, first + count) in accesses of kWidth elements.
template <bool kSplit, class Gradient, class Moment, int kWidth>
void launch_update(StreamHandle stream, const AdamWSlice& slice,
                   const AdamWCoefficients& coefficients, Index first, Index count) {
  if (count == 0) return;
  // Enough blocks to fill any GPU; the rest is strided over.
  const dim3 grid = grid_for(ceil_div(count, Index{kThreads} * kWidth), 4096);
  launch("AdamW", update<kSplit, Gradient, Moment, kWidth>, grid, kThreads, 0, stream, slice,
         coefficients, rounding_words(coefficients.rounding_key, slice.position), first, count);
}

template <bool kSplit, class Gradient, class Moment>
void launch_update(StreamHandle stream, const AdamWSlice& s,
                   const AdamWCoefficients& coefficients) {
  const bool wide =
      allows_wide<float>({s.weights, s.remainder, s.exp_avg, s.exp_avg_sq, s.gradient}, {});
  const Index together = wide ? s.count / kTogether * kTogether : 0;
  launch_update<kSplit, Gradient, Moment, kTogether>(stream, s, coefficients, 0, together);
  launch_update<kSplit, Gradient, Moment, 1>(stream, s, coefficients, together, s.count - together);
}

template <bool kSplit>
void launch_update(StreamHandle stream, const AdamWSlice& slice,
                   const AdamWCoefficients& coefficients) {
  with_type(slice.gradient_type, [&](auto gradient) {
    with_type(slice.moment_type, [&](auto moment) {
      launch_update<kSplit, decltype(gradient), decltype(moment)>(stream, slice, coefficients);
    });
  });
}

}  // namespace

void adamw(StreamHandle stream, const AdamW& op) {
  op.slice.for_each_run([&](const AdamWSlice& run) {
    if (run.remainder != nullptr)
      launch_update<true>(stream, run, op.coefficients);
    else
      launch_update<false>(stream, run, op.coefficients);
  });
}

}  // namespace megatrain::ops::cuda
