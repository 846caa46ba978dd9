#include "core/optim/adamw.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/ops/cpu/adamw_kernels.h"
#include "core/optim/clip.h"
#include "tests/optim/slices.h"

namespace megatrain {
namespace {

using ops::cpu::adamw_kernels;
using ops::cpu::adamw_update_portable;
using ops::cpu::AdamWKernel;

struct Format {
  MasterFormat master;
  DType gradient, moments;
};
constexpr auto kFormats = [] {
  std::array<Format, 12> formats{};
  std::size_t next = 0;
  for (const MasterFormat master : {MasterFormat::split, MasterFormat::fp32, MasterFormat::bf16})
    for (const DType gradient : {DType::bf16, DType::f32})
      for (const DType moments : {DType::f32, DType::bf16})
        formats[next++] = {master, gradient, moments};
  return formats;
}();

SliceData data_of(const Format& format, Index count) {
  return {count, format.master, format.gradient, format.moments};
}

AdamWCoefficients usual_coefficients(std::int64_t step = 3) {
  AdamWCoefficients c = adamw_coefficients({}, 3e-4, 0.7, step, true);
  c.rounding_key = rounding_key(step, 2);
  return c;
}

TEST(AdamWKernels, ListsThisMachine) {
  const auto kernels = adamw_kernels();
  ASSERT_FALSE(kernels.empty());
  EXPECT_STREQ(kernels.front().name, adamw_target());
  EXPECT_STREQ(kernels.back().name, "portable");
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_GE(kernels.size(), 2U) << "a vector unit is there but not used";
  }
#endif
}

TEST(AdamWKernels, SameBitsOnEveryTarget) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    for (const Format format : kFormats) {
      SliceData expected = data_of(format, 20011);
      expected.fill_awkward(7);
      expected.position = (Index{1} << 33) - 7001;
      SliceData actual = expected;
      for (std::int64_t step = 1; step <= 4; ++step) {
        const AdamWCoefficients c = usual_coefficients(step);
        adamw_update_portable(expected.slice(), c);
        kernel.function(actual.slice(), c);
        ASSERT_TRUE(same_bits(expected, actual))
            << kernel.name << " masters " << name(format.master) << " gradient "
            << name(format.gradient) << " moments " << name(format.moments) << " step " << step;
      }
    }
  }
}

TEST(AdamWKernels, DenormalsAreKept) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    SliceData data(64, MasterFormat::fp32, DType::f32);
    const float tiny = std::bit_cast<float>(0x00000400U);
    for (std::size_t i = 0; i < 64; ++i) {
      data.set_weight(i, tiny);
      data.set_gradient(i, tiny);
    }
    AdamWCoefficients c = usual_coefficients();
    c.clip = 1;
    c.decay = 1;
    c.step_size = 0;
    kernel.function(data.slice(), c);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(data.weight(i), tiny) << kernel.name;
      EXPECT_GT(data.first_moment(i), 0.0F) << kernel.name;
    }
  }
}

TEST(AdamWKernels, AnyLengthAndAlignmentTouchesItsElementsOnly) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    for (const Format format : kFormats) {
      for (Index count = 0; count <= 130; ++count) {
        const Index first = count % 7;
        SliceData expected = data_of(format, 150);
        expected.fill_awkward(static_cast<std::uint64_t>(count));
        expected.position = (Index{1} << 32) - 70;
        SliceData actual = expected;
        const AdamWCoefficients c = usual_coefficients();
        for (Index i = first; i < first + count; ++i)
          adamw_update_portable(expected.slice().part(i, 1), c);
        kernel.function(actual.slice().part(first, count), c);
        ASSERT_TRUE(same_bits(expected, actual)) << kernel.name << " count " << count;
      }
    }
  }
}

/// The formula in fp64, from the paper.
struct Exact {
  double p, m, v;
  void step(const AdamWOptions& o, double lr, double clip, std::int64_t t, bool decays, double g) {
    g *= clip;
    if (decays) p -= lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t));
    const double v_hat = v / (1 - std::pow(o.beta2, t));
    p -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

/// The order of operations of torch.optim.AdamW (single tensor), each rounded to fp32.
struct Torch {
  float p, m, v;
  void step(const AdamWOptions& o, double lr, double clip, std::int64_t t, bool decays, float g) {
    g *= static_cast<float>(clip);
    if (decays) p *= static_cast<float>(1 - lr * o.weight_decay);
    m += static_cast<float>(1 - o.beta1) * (g - m);
    v *= static_cast<float>(o.beta2);
    v += static_cast<float>(1 - o.beta2) * g * g;
    const auto bc2 = static_cast<float>(std::sqrt(1 - std::pow(o.beta2, t)));
    const float denominator = std::sqrt(v) / bc2 + static_cast<float>(o.eps);
    p += static_cast<float>(-lr / (1 - std::pow(o.beta1, t))) * m / denominator;
  }
};

TEST(AdamW, AgreesWithExactArithmeticAndWithTorch) {
  for (const Format format : kFormats) {
    if (format.moments != DType::f32 || format.master == MasterFormat::bf16) continue;
    for (const bool decays : {true, false}) {
      SliceData data = data_of(format, 5003);
      data.fill_usual(11);
      std::vector<Exact> exact;
      std::vector<Torch> torch;
      for (std::size_t i = 0; i < 5003; ++i) {
        data.set_moments(i, 0, 0);
        exact.push_back({data.weight(i), 0, 0});
        torch.push_back({data.weight(i), 0, 0});
      }
      const AdamWOptions options;
      for (std::int64_t t = 1; t <= 20; ++t) {
        SliceData gradients = data_of(format, data.count());
        gradients.fill_usual(100 + static_cast<std::uint64_t>(t));
        data.gradient32 = gradients.gradient32;
        data.gradient16 = gradients.gradient16;
        adamw_update(data.slice(), adamw_coefficients(options, 1e-3, 0.5, t, decays));
        for (std::size_t i = 0; i < exact.size(); ++i) {
          exact[i].step(options, 1e-3, 0.5, t, decays, data.gradient(i));
          torch[i].step(options, 1e-3, 0.5, t, decays, data.gradient(i));
        }
      }
      double norm = 0;
      double from_exact = 0;
      double from_torch = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double p = data.weight(i);
        norm += exact[i].p * exact[i].p;
        from_exact += (p - exact[i].p) * (p - exact[i].p);
        from_torch += (p - torch[i].p) * (p - torch[i].p);
        EXPECT_NEAR(data.first_moment(i), exact[i].m, 1e-6 * 1e-3);
        EXPECT_NEAR(data.second_moment(i), exact[i].v, 1e-6 * 1e-6);
      }
      EXPECT_LT(std::sqrt(from_exact / norm), 1e-6);
      EXPECT_LT(std::sqrt(from_torch / norm), 1e-6);
    }
  }
}

TEST(AdamW, SlicingAndThreadsDoNotMatter) {
  const Index count = 3 * kUpdatePiece + 12345;
  for (const Format format : kFormats) {
    SliceData whole = data_of(format, count);
    whole.fill_usual(5);
    whole.position = (Index{1} << 32) - kUpdatePiece - 99;
    SliceData buckets = whole;
    SliceData pooled1 = whole;
    SliceData pooled3 = whole;
    const AdamWCoefficients c = usual_coefficients();
    adamw_update(whole.slice(), c);
    const Index cut1 = 1001;
    const Index cut2 = 2 * kUpdatePiece + 7;
    // Last bucket first: an update does not look at its neighbours.
    adamw_update(buckets.slice().part(cut2, count - cut2), c);
    adamw_update(buckets.slice().part(0, cut1), c);
    adamw_update(buckets.slice().part(cut1, cut2 - cut1), c);
    ThreadPool one(1);
    ThreadPool three(3);
    adamw_update(pooled1.slice(), c, one);
    adamw_update(pooled3.slice(), c, three);
    EXPECT_TRUE(same_bits(whole, buckets));
    EXPECT_TRUE(same_bits(whole, pooled1));
    EXPECT_TRUE(same_bits(whole, pooled3));
  }
}

TEST(AdamW, TinyUpdatesAreNotLost) {
  // 100 updates of about 6e-4: far below half a bf16 step at 1.0 (3.9e-3).
  for (const MasterFormat master : {MasterFormat::split, MasterFormat::fp32}) {
    SliceData data(40, master, DType::bf16);
    for (std::size_t i = 0; i < 40; ++i) {
      data.set_weight(i, 1.0F);
      data.set_gradient(i, 1e-3F);
    }
    AdamWOptions options;
    options.weight_decay = 0;
    for (std::int64_t t = 1; t <= 100; ++t)
      adamw_update(data.slice(), adamw_coefficients(options, 6e-4, 1, t, true));
    for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(data.weight(i), 0.94, 1e-5);
    if (master == MasterFormat::split) {
      EXPECT_NEAR(to_float({data.high[0]}), 0.94, 2e-3);
    }
  }
}

TEST(AdamW, ZerosStayZerosBitByBit) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    for (const Format format : kFormats) {
      for (const float zero : {0.0F, -0.0F}) {
        SliceData data = data_of(format, 70);
        const SliceData before = data;
        for (std::size_t i = 0; i < 70; ++i) data.set_gradient(i, zero);
        for (std::int64_t t = 1; t <= 3; ++t) kernel.function(data.slice(), usual_coefficients(t));
        EXPECT_TRUE(same_bits(before, data)) << kernel.name << " gradient " << zero;
      }
    }
  }
}

TEST(AdamW, AStandstillKeepsEveryWeight) {
  // lr 0: the weights go through the kernels' split and join unchanged. Every exponent, both
  // signs, a stride through the mantissas that hits all low bits.
  for (const AdamWKernel& kernel : adamw_kernels()) {
    SliceData data(1 << 16, MasterFormat::split, DType::bf16);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < (1 << 16); bits += 65521) {
      const auto value = std::bit_cast<float>(bits);
      if (is_master(value)) data.set_weight(i++, value);
    }
    const SliceData before = data;
    kernel.function(data.slice(), adamw_coefficients({}, 0, 1, 1, true));
    EXPECT_EQ(before.high, data.high) << kernel.name;
    EXPECT_EQ(before.remainder, data.remainder) << kernel.name;
  }
}

TEST(AdamW, WeightsSaturateInsteadOfOverflowing) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    for (const Format format : kFormats) {
      SliceData data = data_of(format, 37);
      const bool bf16 = format.master == MasterFormat::bf16;
      const float largest = bf16 ? kLargestBfloat16 : kLargestMaster;
      for (std::size_t i = 0; i < 37; ++i) {
        const float sign = i % 2 == 0 ? 1.0F : -1.0F;
        data.set_weight(i, sign * largest);
        data.set_moments(i, sign * -1e19F, 0);  // the longest step there can be
      }
      AdamWOptions options;
      options.weight_decay = 0;
      options.eps = kSmallestEps;
      kernel.function(data.slice(), adamw_coefficients(options, 1e6, 1, 1, true));
      for (std::size_t i = 0; i < 37; ++i) {
        EXPECT_EQ(data.weight(i), i % 2 == 0 ? largest : -largest) << kernel.name;
        EXPECT_TRUE(std::isfinite(data.first_moment(i)));
        EXPECT_TRUE(std::isfinite(data.second_moment(i)));
        if (format.master != MasterFormat::fp32) {
          EXPECT_TRUE(std::isfinite(to_float({data.high[i]})));
        }
      }
    }
  }
}

TEST(AdamWKernels, NoBf16MomentIsRoundedToInfinity) {
  for (const AdamWKernel& kernel : adamw_kernels()) {
    SliceData data(1000, MasterFormat::split, DType::f32, DType::bf16);
    for (std::size_t i = 0; i < 1000; ++i) {
      data.set_moments(i, 0, kLargestBfloat16);
      data.set_gradient(i, 1.8447e19F);  // its square lies between the largest bf16 and fp32
    }
    AdamWCoefficients c = adamw_coefficients({.beta2 = 0.5}, 1e-3, 1, 1, true);
    for (std::int64_t t = 1; t <= 3; ++t) {
      c.rounding_key = rounding_key(t, 0);
      kernel.function(data.slice(), c);
    }
    for (std::size_t i = 0; i < 1000; ++i)
      ASSERT_EQ(data.second_moment(i), kLargestBfloat16) << kernel.name;
  }
}

TEST(AdamW, WhatClipLetsThroughStaysFinite) {
  // The worst that passes: all of the largest norm in one element, up and down in turn.
  for (const DType moments : {DType::f32, DType::bf16}) {
    SliceData data(1, MasterFormat::split, DType::f32, moments);
    data.set_weight(0, 1.0F);
    AdamWOptions options;
    options.beta1 = 0.99;
    options.beta2 = 0.0;
    options.eps = kSmallestEps;
    for (std::int64_t t = 1; t <= 50; ++t) {
      const double norm = t % 3 == 0 ? 0.0 : kLargestClippedNorm;
      const double squared = norm * norm;
      const ClipDecision decision = clip(std::span(&squared, 1), 0);
      ASSERT_TRUE(decision.apply);
      data.set_gradient(0, static_cast<float>(t % 2 == 0 ? norm : -norm));
      AdamWCoefficients c = adamw_coefficients(options, 1e-3, decision.factor, t, true);
      c.rounding_key = rounding_key(t, 0);
      adamw_update(data.slice(), c);
      EXPECT_TRUE(std::isfinite(data.first_moment(0)));
      EXPECT_TRUE(std::isfinite(data.second_moment(0)));
      EXPECT_TRUE(is_master(data.weight(0))) << t;
    }
  }
}

TEST(AdamW, CoefficientsAreMadeInDoublePrecision) {
  const AdamWCoefficients c = adamw_coefficients({0.9, 0.999, 1e-8, 0.1}, 1e-3, 0.25, 2, true);
  EXPECT_EQ(c.clip, 0.25F);
  EXPECT_EQ(c.decay, static_cast<float>(1 - 1e-4));
  EXPECT_EQ(c.one_minus_beta1, static_cast<float>(1 - 0.9));
  EXPECT_EQ(c.step_size, static_cast<float>(1e-3 / (1 - 0.9 * 0.9)));
  EXPECT_EQ(c.inv_sqrt_bc2, static_cast<float>(1 / std::sqrt(1 - 0.999 * 0.999)));
  EXPECT_EQ(adamw_coefficients({}, 1e-3, 1, 2, false).decay, 1.0F);
  // The bias correction ends at 1, it never overflows.
  const AdamWCoefficients late = adamw_coefficients({}, 1e-3, 1, std::int64_t{1} << 40, true);
  EXPECT_EQ(late.step_size, 1e-3F);
  EXPECT_EQ(late.inv_sqrt_bc2, 1.0F);
}

TEST(AdamW, RefusesWhatCannotWork) {
  const auto refused = [](AdamWOptions options, double lr = 1e-3) {
    EXPECT_THROW((void)adamw_coefficients(options, lr, 1, 1, true), UserError);
  };
  const double nan = std::nan("");
  refused({1.0, 0.95, 1e-8, 0.1});
  refused({-0.1, 0.95, 1e-8, 0.1});
  refused({nan, 0.95, 1e-8, 0.1});
  refused({0.9, 1.0, 1e-8, 0.1});
  refused({0.9, 0.95, 0, 0.1});
  refused({0.9, 0.95, 1e-30, 0.1});
  refused({0.9, 0.95, nan, 0.1});
  refused({0.9, 0.95, 1e-8, -0.1});
  refused({0.9, 0.95, 1e-8, nan});
  refused({0.9, 0.95, 1e-8, 2.0}, 0.6);
  refused({}, -1e-3);
  refused({}, nan);
  EXPECT_THROW((void)adamw_coefficients({}, 1e-3, 1, 0, true), LogicError);
  EXPECT_THROW((void)adamw_coefficients({}, 1e-3, nan, 1, true), LogicError);
}

}  // namespace
}  // namespace megatrain
