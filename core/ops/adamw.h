#pragma once
/// @file
/// AdamW (Loshchilov & Hutter 2019, algorithm 2), as a pure function.
///
/// Same bits on every instruction set, on every device and for every slicing: each operation below
/// is one IEEE fp32 operation rounded to nearest, denormals kept, nothing contracted by the
/// compiler.

#include <algorithm>
#include <cstdint>

#include "core/base/master_format.h"
#include "core/base/stochastic_rounding.h"
#include "core/ops/common.h"

namespace megatrain::ops {

/// What one update of one tensor group needs, made once a step in fp64 and rounded to fp32.
/// The update of an element (PyTorch's AdamW; fma(a, b, c) is a * b + c with one rounding):
///   g = clip * gradient
///   p = p * decay                            decay = 1 - lr * weight_decay
///   m = fma(1 - beta1, g - m, m)             beta1 * m + (1 - beta1) * g
///   v = fma(1 - beta2, g * g, beta2 * v)     beta2 * v + (1 - beta2) * g^2
///   p = fma(-step_size, m / fma(sqrt(v), inv_sqrt_bc2, eps), p)
///   p = p, or kLargestMaster with its sign where it is larger (core/base/split_master.h)
/// So a weight saturates before its bf16 would be infinite. A step that clip() lets through keeps
/// every state finite; what a NaN among the inputs gives is not defined.
///
/// Moments that are kept as bf16 are rounded by chance (core/base/stochastic_rounding.h) where they
/// are stored, and nowhere else: p sees the m and v of fp32. r being the random bits of the
/// element,
///   m = round_by_chance(m, r modulo 2^16)
///   v = round_by_chance(min(v, kLargestBfloat16), r / 2^16)
/// Rounding to nearest would not do: with beta2 = 0.999 a step changes v by less than half of what
/// its bf16 can show, and v would stand still. No moment becomes infinite: v by the minimum, which
/// only gradients near kLargestClippedNorm (core/optim/clip.h) could reach, and m because it is an
/// average of gradients below that, 19 orders of magnitude away.
///
/// Masters that are kept as bf16 are rounded the same way: what a step changes is most often less
/// than half of what they can show.
///   p = round_by_chance(clamp(p, +-kLargestBfloat16), third_number(r))
struct AdamWCoefficients {
  float clip = 1;
  float decay = 1;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float step_size = 0;     ///< lr / (1 - beta1^t)
  float inv_sqrt_bc2 = 1;  ///< 1 / sqrt(1 - beta2^t)
  float eps = 0;
  std::uint64_t rounding_key = 0;  ///< for states that are kept as bf16: rounding_key()
};

/// A contiguous range of elements of one tensor group; the arrays do not overlap, each is aligned
/// to its element.
struct AdamWSlice {
  Index count = 0;
  std::byte* weights = nullptr;       ///< weight_type(master)
  std::int16_t* remainder = nullptr;  ///< of split masters, else nullptr
  std::byte* exp_avg = nullptr;       ///< both moments: `moment_type`
  std::byte* exp_avg_sq = nullptr;
  const std::byte* gradient = nullptr;
  DType gradient_type = DType::bf16;
  DType moment_type = DType::f32;
  MasterFormat master = MasterFormat::fp32;
  /// Where the first element lies in the whole slab of its unit, of which other ranks may hold the
  /// rest: what is random depends on it, and so on no cut.
  Index position = 0;

  /// Bytes of an element's weight, without the remainder.
  [[nodiscard]] Index weight_bytes() const { return size_of(weight_type(master)); }

  /// Elements [first, first + elements) of this slice.
  [[nodiscard]] AdamWSlice part(Index first, Index elements) const {
    AdamWSlice result = *this;
    result.count = elements;
    result.weights += first * weight_bytes();
    if (remainder != nullptr) result.remainder += first;
    result.exp_avg += first * size_of(moment_type);
    result.exp_avg_sq += first * size_of(moment_type);
    result.gradient += first * size_of(gradient_type);
    result.position += first;
    return result;
  }

  /// Calls body with one part after another in which the upper 32 bits of positions are the same:
  /// RoundingWords hold for all of it.
  template <class Body>
  void for_each_run(const Body& body) const {
    constexpr Index kRun = Index{1} << 32;
    for (Index first = 0; first < count;) {
      const Index elements = std::min(count - first, kRun - (position + first) % kRun);
      body(part(first, elements));
      first += elements;
    }
  }
};

/// Bytes of an element that an update reads and writes: masters and moments both ways, and the
/// gradient.
constexpr Index adamw_traffic(MasterFormat master, DType moment_type, DType gradient_type) {
  return 2 * (master_bytes(master) + 2 * size_of(moment_type)) + size_of(gradient_type);
}

/// Updates weights and moments of a slice in place: what the host's update does, for states that
/// live on the device.
struct AdamW {
  AdamWSlice slice;
  AdamWCoefficients coefficients;
};

}  // namespace megatrain::ops
