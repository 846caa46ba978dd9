#include <algorithm>
#include <cmath>

#include "core/base/bfloat16.h"
#include "core/base/split_master.h"
#include "core/ops/cpu/adamw_kernels.h"

namespace megatrain::ops::cpu {

namespace {

float load_gradient(const AdamWSlice& slice, Index i) {
  if (slice.gradient_type == DType::f32) return reinterpret_cast<const float*>(slice.gradient)[i];
  return to_float({reinterpret_cast<const std::uint16_t*>(slice.gradient)[i]});
}

}  // namespace

void adamw_update_portable(const AdamWSlice& slice, const AdamWCoefficients& c) {
  auto* const full = reinterpret_cast<float*>(slice.weights);
  auto* const high = reinterpret_cast<std::uint16_t*>(slice.weights);
  for (Index i = 0; i < slice.count; ++i) {
    const float g = c.clip * load_gradient(slice, i);
    float m = slice.exp_avg[i];
    float v = slice.exp_avg_sq[i];
    float p = slice.remainder ? join_master({{high[i]}, slice.remainder[i]}) : full[i];

    p = p * c.decay;
    m = std::fma(c.one_minus_beta1, g - m, m);
    v = std::fma(c.one_minus_beta2, g * g, c.beta2 * v);
    const float denominator = std::fma(std::sqrt(v), c.inv_sqrt_bc2, c.eps);
    p = std::fma(-c.step_size, m / denominator, p);
    p = std::clamp(p, -kLargestMaster, kLargestMaster);

    slice.exp_avg[i] = m;
    slice.exp_avg_sq[i] = v;
    if (slice.remainder) {
      const SplitMaster split = split_master(p);
      high[i] = split.high.bits;
      slice.remainder[i] = split.remainder;
    } else {
      full[i] = p;
    }
  }
}

}  // namespace megatrain::ops::cpu
