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

/// @param random  of each element, below 2^16
template <int kWidth>
__device__ void store_rounded(bf16* to, const float (&values)[kWidth],
                              const std::uint32_t (&random)[kWidth]) {
  Pack<std::uint16_t, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) rounded.values[i] = round_by_chance(values[i], random[i]).bits;
  *reinterpret_cast<Pack<std::uint16_t, kWidth>*>(to) = rounded;
}

/// Both moments of kWidth elements as they are kept.
/// @param random  random_bits() of each element, for what is rounded by chance
template <class Moment, int kWidth>
__device__ void store_moments(Moment* first, Moment* second, const float (&m)[kWidth],
                              float (&v)[kWidth], const std::uint32_t (&random)[kWidth]) {
  if constexpr (sizeof(Moment) == 2) {
    std::uint32_t for_first[kWidth], for_second[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      for_first[i] = random[i] & 0xFFFFU;
      for_second[i] = random[i] >> 16;
      v[i] = fminf(v[i], kLargestBfloat16);
    }
    store_rounded(first, m, for_first);
    store_rounded(second, v, for_second);
  } else {
    store(first, m);
    store(second, v);
  }
}

/// The masters of elements [at, at + kWidth).
template <MasterFormat kMaster, int kWidth>
__device__ void load_masters(const AdamWSlice& slice, Index at, float (&p)[kWidth]) {
  if constexpr (kMaster == MasterFormat::split) {
    using Highs = Pack<std::uint16_t, kWidth>;
    using Remainders = Pack<std::int16_t, kWidth>;
    const auto* high = reinterpret_cast<const std::uint16_t*>(slice.weights);
    const Highs highs = *reinterpret_cast<const Highs*>(high + at);
    const Remainders remainders = *reinterpret_cast<const Remainders*>(slice.remainder + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) p[i] = join_master({{highs.values[i]}, remainders.values[i]});
  } else if constexpr (kMaster == MasterFormat::bf16) {
    load(reinterpret_cast<const bf16*>(slice.weights) + at, p);
  } else {
    load(reinterpret_cast<const float*>(slice.weights) + at, p);
  }
}

/// @param random  random_bits() of each element, for what is rounded by chance
template <MasterFormat kMaster, int kWidth>
__device__ void store_masters(const AdamWSlice& slice, Index at, float (&p)[kWidth],
                              const std::uint32_t (&random)[kWidth]) {
  if constexpr (kMaster == MasterFormat::split) {
    using Highs = Pack<std::uint16_t, kWidth>;
    using Remainders = Pack<std::int16_t, kWidth>;
    Highs highs;
    Remainders remainders;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const SplitMaster split = split_master(p[i]);
      highs.values[i] = split.high.bits;
      remainders.values[i] = split.remainder;
    }
    *reinterpret_cast<Highs*>(reinterpret_cast<std::uint16_t*>(slice.weights) + at) = highs;
    *reinterpret_cast<Remainders*>(slice.remainder + at) = remainders;
  } else if constexpr (kMaster == MasterFormat::bf16) {
    std::uint32_t for_weight[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      for_weight[i] = third_number(random[i]);
      p[i] = fminf(fmaxf(p[i], -kLargestBfloat16), kLargestBfloat16);
    }
    store_rounded(reinterpret_cast<bf16*>(slice.weights) + at, p, for_weight);
  } else {
    store(reinterpret_cast<float*>(slice.weights) + at, p);
  }
}

/// @param words  hold for every element of the slice
template <MasterFormat kMaster, class Gradient, class Moment, int kWidth>
__global__ void __launch_bounds__(kThreads) update(AdamWSlice slice, AdamWCoefficients coefficients,
                                                   RoundingWords words, Index first, Index count) {
  const Index stride = Index{gridDim.x} * kThreads * kWidth;
  const auto* gradients = reinterpret_cast<const Gradient*>(slice.gradient);
  auto* first_moments = reinterpret_cast<Moment*>(slice.exp_avg);
  auto* second_moments = reinterpret_cast<Moment*>(slice.exp_avg_sq);
  for (Index at = first + (Index{blockIdx.x} * kThreads + threadIdx.x) * kWidth; at < first + count;
       at += stride) {
    float p[kWidth], m[kWidth], v[kWidth], g[kWidth];
    load(gradients + at, g);
    load(first_moments + at, m);
    load(second_moments + at, v);
    load_masters<kMaster>(slice, at, p);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) update_element(coefficients, g[i], p[i], m[i], v[i]);
    std::uint32_t random[kWidth] = {};
    if constexpr (sizeof(Moment) == 2 || kMaster == MasterFormat::bf16) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        random[i] = random_bits(words, static_cast<std::uint32_t>(slice.position + at + i));
    }
    store_moments(first_moments + at, second_moments + at, m, v, random);
    store_masters<kMaster>(slice, at, p, random);
  }
}

/// Elements [first, first + count) in accesses of kWidth elements.
template <MasterFormat kMaster, class Gradient, class Moment, int kWidth>
void launch_update(StreamHandle stream, const AdamWSlice& slice,
                   const AdamWCoefficients& coefficients, Index first, Index count) {
  if (count == 0) return;
  // Enough blocks to fill any GPU; the rest is strided over.
  const dim3 grid = grid_for(ceil_div(count, Index{kThreads} * kWidth), 4096);
  launch("AdamW", update<kMaster, Gradient, Moment, kWidth>, grid, kThreads, 0, stream, slice,
         coefficients, rounding_words(coefficients.rounding_key, slice.position), first, count);
}

template <MasterFormat kMaster, class Gradient, class Moment>
void launch_update(StreamHandle stream, const AdamWSlice& s,
                   const AdamWCoefficients& coefficients) {
  const bool wide =
      allows_wide<float>({s.weights, s.remainder, s.exp_avg, s.exp_avg_sq, s.gradient}, {});
  const Index together = wide ? s.count / kTogether * kTogether : 0;
  launch_update<kMaster, Gradient, Moment, kTogether>(stream, s, coefficients, 0, together);
  launch_update<kMaster, Gradient, Moment, 1>(stream, s, coefficients, together,
                                              s.count - together);
}

template <MasterFormat kMaster>
void launch_update(StreamHandle stream, const AdamWSlice& slice,
                   const AdamWCoefficients& coefficients) {
  with_type(slice.gradient_type, [&](auto gradient) {
    with_type(slice.moment_type, [&](auto moment) {
      launch_update<kMaster, decltype(gradient), decltype(moment)>(stream, slice, coefficients);
    });
  });
}

}  // namespace

void adamw(StreamHandle stream, const AdamW& op) {
  op.slice.for_each_run([&](const AdamWSlice& run) {
    with_format(run.master, [&](auto master) {
      launch_update<decltype(master)::value>(stream, run, op.coefficients);
    });
  });
}

}  // namespace megatrain::ops::cuda
