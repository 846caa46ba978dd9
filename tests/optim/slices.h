#pragma once
/// @file
/// Buffers that an AdamWSlice points into (one element at least), filled with awkward numbers.

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/bfloat16.h"
#include "core/base/split_master.h"
#include "core/optim/adamw.h"

namespace megatrain {

struct SliceData {
  MasterFormat master = MasterFormat::fp32;
  DType gradient_type = DType::f32;
  DType moment_type = DType::f32;
  Index position = 0;
  std::vector<std::uint16_t> high;
  std::vector<std::int16_t> remainder;
  std::vector<float> full, gradient32;
  std::vector<std::uint16_t> gradient16;
  std::vector<std::byte> exp_avg, exp_avg_sq;

  SliceData(Index count, MasterFormat masters, DType gradient, DType moments = DType::f32)
      : master(masters), gradient_type(gradient), moment_type(moments) {
    const auto n = static_cast<std::size_t>(count);
    high.resize(plain() ? 0 : n);
    remainder.resize(remainder_bytes(master) > 0 ? n : 0);
    full.resize(plain() ? n : 0);
    exp_avg.resize(n * static_cast<std::size_t>(size_of(moments)));
    exp_avg_sq.resize(exp_avg.size());
    gradient32.resize(gradient == DType::f32 ? n : 0);
    gradient16.resize(gradient == DType::bf16 ? n : 0);
  }

  [[nodiscard]] bool plain() const { return master == MasterFormat::fp32; }
  [[nodiscard]] Index count() const { return std::ssize(exp_avg) / size_of(moment_type); }

  [[nodiscard]] AdamWSlice slice() {
    AdamWSlice slice;
    slice.count = count();
    slice.weights = reinterpret_cast<std::byte*>(plain() ? static_cast<void*>(full.data())
                                                         : static_cast<void*>(high.data()));
    slice.remainder = remainder.empty() ? nullptr : remainder.data();
    slice.exp_avg = exp_avg.data();
    slice.exp_avg_sq = exp_avg_sq.data();
    slice.gradient = gradient_type == DType::f32
                         ? reinterpret_cast<const std::byte*>(gradient32.data())
                         : reinterpret_cast<const std::byte*>(gradient16.data());
    slice.gradient_type = gradient_type;
    slice.moment_type = moment_type;
    slice.master = master;
    slice.position = position;
    return slice;
  }

  [[nodiscard]] float weight(std::size_t i) const {
    if (plain()) return full[i];
    return remainder.empty() ? to_float({high[i]}) : join_master({{high[i]}, remainder[i]});
  }
  void set_weight(std::size_t i, float value) {
    if (plain()) {
      full[i] = value;
      return;
    }
    const SplitMaster parts = split_master(value);
    high[i] = parts.high.bits;
    if (!remainder.empty()) remainder[i] = parts.remainder;
  }
  [[nodiscard]] float first_moment(std::size_t i) const { return moment(exp_avg, i); }
  [[nodiscard]] float second_moment(std::size_t i) const { return moment(exp_avg_sq, i); }
  void set_moments(std::size_t i, float first, float second) {
    set_moment(exp_avg, i, first);
    set_moment(exp_avg_sq, i, second);
  }
  [[nodiscard]] float gradient(std::size_t i) const {
    return gradient_type == DType::f32 ? gradient32[i] : to_float({gradient16[i]});
  }
  void set_gradient(std::size_t i, float value) {
    if (gradient_type == DType::f32)
      gradient32[i] = value;
    else
      gradient16[i] = to_bfloat16(value).bits;
  }

  /// Values of all magnitudes: zeros of both signs, denormals, ordinary and huge ones.
  void fill_awkward(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int low_exponent, int high_exponent) {
      const auto draw = random();
      const auto mantissa = static_cast<std::uint32_t>(draw) & 0x007fffffU;
      const auto exponent = static_cast<std::uint32_t>(
          low_exponent +
          static_cast<int>((draw >> 32) % static_cast<unsigned>(high_exponent - low_exponent)));
      switch ((draw >> 48) % 12) {
        case 0:
          return 0.0F;
        case 1:
          return std::bit_cast<float>(mantissa);  // denormal
        case 2:
          return -std::bit_cast<float>(mantissa);
        default:
          return std::bit_cast<float>((exponent << 23) | mantissa |
                                      (static_cast<std::uint32_t>(draw >> 63) << 31));
      }
    };
    for (std::size_t i = 0; i < static_cast<std::size_t>(count()); ++i) {
      set_weight(i, any(1, 254));
      // Like the states of real runs: bounded by what clip() lets through.
      const float first = any(1, 190);
      set_moments(i, first, std::abs(any(1, 250)));
      set_gradient(i, any(1, 189));
    }
  }
  /// Values of the size that training has.
  void fill_usual(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count()); ++i) {
      set_weight(i, 0.02F * normal(random));
      const float first = 1e-4F * normal(random);
      set_moments(i, first, 1e-8F * std::abs(normal(random)));
      set_gradient(i, 1e-3F * normal(random));
    }
  }

 private:
  [[nodiscard]] float moment(const std::vector<std::byte>& from, std::size_t i) const {
    if (moment_type == DType::f32) return reinterpret_cast<const float*>(from.data())[i];
    return to_float(reinterpret_cast<const bfloat16*>(from.data())[i]);
  }
  void set_moment(std::vector<std::byte>& to, std::size_t i, float value) const {
    if (moment_type == DType::f32)
      reinterpret_cast<float*>(to.data())[i] = value;
    else
      reinterpret_cast<bfloat16*>(to.data())[i] = to_bfloat16(value);
  }
};

/// Bitwise equality of everything that an update writes.
inline bool same_bits(const SliceData& a, const SliceData& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return same(a.high, b.high) && same(a.remainder, b.remainder) && same(a.full, b.full) &&
         same(a.exp_avg, b.exp_avg) && same(a.exp_avg_sq, b.exp_avg_sq);
}

}  // namespace megatrain
