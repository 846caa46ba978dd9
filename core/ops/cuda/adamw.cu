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

template <bool kSplit, class Gradient, int kWidth>
__global__ void __launch_bounds__(kThreads)
    update(AdamWSlice slice, AdamWCoefficients coefficients, Index first, Index count) {
  const Index stride = Index{gridDim.x} * kThreads * kWidth;
  const auto* gradients = reinterpret_cast<const Gradient*>(slice.gradient);
  auto* full = reinterpret_cast<float*>(slice.weights);
  auto* high = reinterpret_cast<std::uint16_t*>(slice.weights);
  using Highs = Pack<std::uint16_t, kWidth>;
  using Remainders = Pack<std::int16_t, kWidth>;
  for (Index at = first + (Index{blockIdx.x} * kThreads + threadIdx.x) * kWidth; at < first + count;
       at += stride) {
    float p[kWidth], m[kWidth], v[kWidth], g[kWidth];
    load(gradients + at, g);
    load(slice.exp_avg + at, m);
    load(slice.exp_avg_sq + at, v);
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
    store(slice.exp_avg + at, m);
    store(slice.exp_avg_sq + at, v);
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
template <bool kSplit, class Gradient, int kWidth>
void launch_update(StreamHandle stream, const AdamW& op, Index first, Index count) {
  if (count == 0) return;
  // Enough blocks to fill any GPU; the rest is strided over.
  const dim3 grid = grid_for(ceil_div(count, Index{kThreads} * kWidth), 4096);
  launch("AdamW", update<kSplit, Gradient, kWidth>, grid, kThreads, 0, stream, op.slice,
         op.coefficients, first, count);
}

template <bool kSplit>
void launch_update(StreamHandle stream, const AdamW& op) {
  const AdamWSlice& s = op.slice;
  with_type(s.gradient_type, [&](auto element) {
    using Gradient = decltype(element);
    const bool wide =
        allows_wide<float>({s.weights, s.remainder, s.exp_avg, s.exp_avg_sq, s.gradient}, {});
    const Index together = wide ? s.count / kTogether * kTogether : 0;
    launch_update<kSplit, Gradient, kTogether>(stream, op, 0, together);
    launch_update<kSplit, Gradient, 1>(stream, op, together, s.count - together);
  });
}

}  // namespace

void adamw(StreamHandle stream, const AdamW& op) {
  if (op.slice.remainder != nullptr)
    launch_update<true>(stream, op);
  else
    launch_update<false>(stream, op);
}

}  // namespace megatrain::ops::cuda
