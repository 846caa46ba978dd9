// Compiled once for each instruction set: foreach_target.h includes this file again and again.

#include "core/optim/read_write.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/optim/read_write.cpp"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint64_t>;
using Vector = hn::Vec<Words>;

/// Vector `i` of an array.
HWY_INLINE std::uint64_t* vector_at(void* array, Index i) {
  return static_cast<std::uint64_t*>(array) + i * static_cast<Index>(hn::Lanes(Words()));
}

/// `kVectors` of an array for each step of the loop.
template <Index kVectors>
HWY_INLINE void rewrite(void* array, Index step, Vector change) {
  const Words d;
  for (Index i = 0; i < kVectors; ++i) {
    std::uint64_t* const at = vector_at(array, step * kVectors + i);
    hn::StoreU(hn::Xor(hn::LoadU(d, at), change), d, at);
  }
}

/// A step is a vector of 2-byte elements, so two vectors of 4-byte ones.
template <MasterFormat kMaster, Index kGradientVectors, Index kMomentVectors>
void read_and_write_piece(const AdamWSlice& slice, std::uint64_t mask) {
  const Words d;
  const Vector changed = hn::Set(d, mask);
  const Index steps = 2 * slice.count / static_cast<Index>(hn::Lanes(d) * sizeof(std::uint64_t));
  auto* const gradient = const_cast<std::byte*>(slice.gradient);  // read only
  for (Index step = 0; step < steps; ++step) {
    Vector change = hn::LoadU(d, vector_at(gradient, step * kGradientVectors));
    if constexpr (kGradientVectors == 2)
      change = hn::Or(change, hn::LoadU(d, vector_at(gradient, step * 2 + 1)));
    change = hn::And(change, changed);
    rewrite<size_of(weight_type(kMaster)) / 2>(slice.weights, step, change);
    if constexpr (remainder_bytes(kMaster) > 0) rewrite<1>(slice.remainder, step, change);
    rewrite<kMomentVectors>(slice.exp_avg, step, change);
    rewrite<kMomentVectors>(slice.exp_avg_sq, step, change);
  }
}

template <MasterFormat kMaster, Index kGradientVectors>
void read_and_write_moments(const AdamWSlice& slice, std::uint64_t mask) {
  if (slice.moment_type == DType::bf16)
    read_and_write_piece<kMaster, kGradientVectors, 1>(slice, mask);
  else
    read_and_write_piece<kMaster, kGradientVectors, 2>(slice, mask);
}

template <MasterFormat kMaster>
void read_and_write_masters(const AdamWSlice& slice, std::uint64_t mask) {
  if (slice.gradient_type == DType::bf16)
    read_and_write_moments<kMaster, 1>(slice, mask);
  else
    read_and_write_moments<kMaster, 2>(slice, mask);
}

/// @param mask  the bits that change: a compiler that knew of none would leave the loop out
void read_and_write_any(const AdamWSlice& slice, std::uint64_t mask) {
  with_format(slice.master,
              [&](auto master) { read_and_write_masters<decltype(master)::value>(slice, mask); });
}

}  // namespace megatrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(read_and_write_any);

void read_and_write(const AdamWSlice& slice, ThreadPool& pool) {
  require(slice.count % kUpdatePiece == 0, "whole pieces to read and write");
  pool.for_each(slice.count / kUpdatePiece, [&slice](Index piece) {
    HWY_DYNAMIC_DISPATCH(read_and_write_any)(slice.part(piece * kUpdatePiece, kUpdatePiece), 0);
  });
}

}  // namespace megatrain
#endif
