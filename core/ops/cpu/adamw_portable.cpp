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

float load_moment(const std::byte* moments, DType type, Index i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(moments)[i];
  return to_float({reinterpret_cast<const std::uint16_t*>(moments)[i]});
}

float load_master(const AdamWSlice& slice, Index i) {
  if (slice.master == MasterFormat::fp32) return reinterpret_cast<const float*>(slice.weights)[i];
  const bfloat16 high = {reinterpret_cast<const std::uint16_t*>(slice.weights)[i]};
  return slice.master == MasterFormat::split ? join_master({high, slice.remainder[i]})
                                             : to_float(high);
}

/// @param random  below 2^16, for what is rounded by chance
void store_master(const AdamWSlice& slice, Index i, float value, std::uint32_t random) {
  auto* const high = reinterpret_cast<std::uint16_t*>(slice.weights);
  switch (slice.master) {
    case MasterFormat::fp32:
      reinterpret_cast<float*>(slice.weights)[i] = value;
      return;
    case MasterFormat::split: {
      const SplitMaster split = split_master(value);
      high[i] = split.high.bits;
      slice.remainder[i] = split.remainder;
      return;
    }
    case MasterFormat::bf16:
      high[i] =
          round_by_chance(std::clamp(value, -kLargestBfloat16, kLargestBfloat16), random).bits;
      return;
  }
}

void store_moment(std::byte* moments, DType type, Index i, float value, std::uint32_t random) {
  if (type == DType::f32)
    reinterpret_cast<float*>(moments)[i] = value;
  else
    reinterpret_cast<std::uint16_t*>(moments)[i] = round_by_chance(value, random).bits;
}

/// A part of which RoundingWords hold for every element.
void update_run(const AdamWSlice& slice, const AdamWCoefficients& c) {
  const DType moments = slice.moment_type;
  const RoundingWords words = rounding_words(c.rounding_key, slice.position);
  for (Index i = 0; i < slice.count; ++i) {
    const float g = c.clip * load_gradient(slice, i);
    float m = load_moment(slice.exp_avg, moments, i);
    float v = load_moment(slice.exp_avg_sq, moments, i);
    float p = load_master(slice, i);

    p = p * c.decay;
    m = std::fma(c.one_minus_beta1, g - m, m);
    v = std::fma(c.one_minus_beta2, g * g, c.beta2 * v);
    const float denominator = std::fma(std::sqrt(v), c.inv_sqrt_bc2, c.eps);
    p = std::fma(-c.step_size, m / denominator, p);
    p = std::clamp(p, -kLargestMaster, kLargestMaster);

    const std::uint32_t random = random_bits(words, static_cast<std::uint32_t>(slice.position + i));
    if (moments == DType::bf16) v = std::min(v, kLargestBfloat16);
    store_moment(slice.exp_avg, moments, i, m, random & 0xFFFFU);
    store_moment(slice.exp_avg_sq, moments, i, v, random >> 16);
    store_master(slice, i, p, third_number(random));
  }
}

}  // namespace

void adamw_update_portable(const AdamWSlice& slice, const AdamWCoefficients& coefficients) {
  slice.for_each_run([&](const AdamWSlice& run) { update_run(run, coefficients); });
}

}  // namespace megatrain::ops::cpu
