#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/reduce_gradient.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <span>

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

/// Sum of squares of `count` values, exact products, fp64 sums.
HWY_INLINE double square_sum(const float* x, Index count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  Index i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i));
    const auto b = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// The squares of [begin, end) that count.
double counted_square_sum(const ReduceGradient& op, Index begin, Index end) {
  if (op.uncounted.count == 0) return square_sum(op.gradient + begin, end - begin);
  double sum = 0;
  const auto runs =
      std::span(op.uncounted.runs).first(static_cast<std::size_t>(op.uncounted.count));
  for (const auto& run : runs) {
    if (run.first > begin) sum += square_sum(op.gradient + begin, std::min(run.first, end) - begin);
    begin = std::clamp(run.last, begin, end);
    if (begin == end) return sum;
  }
  return sum + square_sum(op.gradient + begin, end - begin);
}

void reduce_chunk(const ReduceGradient& op, Index chunk) {
  const Index begin = chunk * kNormChunk;
  const Index count = std::min(kNormChunk, op.count - begin);
  const float* x = op.gradient + begin;
  op.partials[chunk] = counted_square_sum(op, begin, begin + count);
  if (op.wire_type == DType::f32) {
    std::memcpy(static_cast<float*>(op.wire) + begin, x, static_cast<std::size_t>(count) * 4);
    return;
  }
  auto* wire = static_cast<bfloat16*>(op.wire) + begin;
  for_lanes(count, [&](Index i, auto span) HWY_ATTR { store(load(x + i, span), wire + i, span); });
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {
HWY_EXPORT(reduce_chunk);
}

void reduce_gradient(OpState& /*state*/, Stream& stream, const ReduceGradient& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_read(op.gradient, op.count * 4);
    announce_write(op.wire, op.count * size_of(op.wire_type));
    announce_write(op.partials, norm_partials(op.count) * 8);
    own.pool().for_each(norm_partials(op.count),
                        [&](Index chunk) { HWY_DYNAMIC_DISPATCH(reduce_chunk)(op, chunk); });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
