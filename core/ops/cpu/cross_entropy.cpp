#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <cmath>

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE float row_maximum(const T* x, Index columns) {
  const Floats d;
  const FloatVec lowest = hn::Set(d, hwy::LowestValue<float>());
  FloatVec most = lowest;
  for_lanes(columns, [&](Index c, auto span) HWY_ATTR {
    FloatVec v = load(x + c, span);
    if constexpr (std::is_same_v<decltype(span), Part>)
      v = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(span.count)), v, lowest);
    most = hn::Max(most, v);
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Sum of exp(x - shift): fp32 within a block, fp64 over the blocks, so that a large vocabulary
/// loses nothing.
template <class T>
HWY_INLINE double exp_sum(const T* x, Index columns, float shift) {
  constexpr Index kBlock = 4096;
  const FloatVec shifts = hn::Set(Floats(), shift);
  double total = 0;
  for (Index begin = 0; begin < columns; begin += kBlock) {
    FloatVec sum = hn::Zero(Floats());
    for_lanes(std::min(kBlock, columns - begin), [&](Index c, auto span) HWY_ATTR {
      const FloatVec e = exp_of(hn::Sub(load(x + begin + c, span), shifts));
      sum = hn::Add(sum, only(e, span));
    });
    total += static_cast<double>(sum_of(sum));
  }
  return total;
}

/// x = exp(x - maximum) * factor.
template <class T>
HWY_INLINE void softmax_times(T* x, Index columns, float maximum, double factor) {
  const FloatVec shift = hn::Set(Floats(), maximum);
  const FloatVec factors = hn::Set(Floats(), static_cast<float>(factor));
  for_lanes(columns, [&](Index c, auto span) HWY_ATTR {
    const FloatVec e = exp_of(hn::Sub(load(x + c, span), shift));
    store(hn::Mul(e, factors), x + c, span);
  });
}

/// (softmax - 1) * scale of the target, whose logit is `chosen` above the maximum.
template <class T>
HWY_INLINE void store_target_gradient(T* x, float chosen, double sum, float scale) {
  const double at_target = std::exp(static_cast<double>(chosen)) / sum - 1.0;
  const auto gradient = static_cast<float>(at_target * static_cast<double>(scale));
  store(hn::Set(Floats(), gradient), x, Part{1});
}

template <class T>
void cross_entropy_of(const CrossEntropy& op, Range tokens) {
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    T* x = static_cast<T*>(op.logits) + t * op.stride;
    const Index target = op.targets[t];
    if (target < 0) {
      op.losses[t] = 0;
      if (op.gradient) std::memset(x, 0, static_cast<std::size_t>(op.vocabulary) * sizeof(T));
      continue;
    }
    require(target < op.vocabulary, "a target token lies beyond the vocabulary");
    const float maximum = row_maximum(x, op.vocabulary);
    const double sum = exp_sum(x, op.vocabulary, maximum);
    const float chosen = hn::GetLane(load(x + target, Part{1})) - maximum;
    op.losses[t] = static_cast<float>(std::log(sum) - static_cast<double>(chosen));
    if (!op.gradient) continue;
    softmax_times(x, op.vocabulary, maximum, static_cast<double>(op.scale) / sum);
    store_target_gradient(x + target, chosen, sum, op.scale);
  }
}

template <class T>
void statistics_of(const LogitStatistics& op, Range tokens) {
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    const T* x = static_cast<const T*>(op.logits) + t * op.stride;
    const Index target = op.targets[t] - op.first;
    const bool here = op.targets[t] >= 0 && target >= 0 && target < op.vocabulary;
    const float maximum = row_maximum(x, op.vocabulary);
    op.statistics[t] = maximum;
    op.statistics[op.tokens + t] = static_cast<float>(exp_sum(x, op.vocabulary, maximum));
    op.statistics[2 * op.tokens + t] = here ? hn::GetLane(load(x + target, Part{1})) : 0;
  }
}

template <class T>
void cross_entropy_of_part_of(const CrossEntropyOfPart& op, Range tokens) {
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    T* x = static_cast<T*>(op.logits) + t * op.stride;
    const Index target = op.targets[t] - op.first;
    if (op.targets[t] < 0) {
      op.losses[t] = 0;
      if (op.gradient) std::memset(x, 0, static_cast<std::size_t>(op.columns) * sizeof(T));
      continue;
    }
    const auto statistic = [&](Index part, Index which) {
      return op.statistics[(part * kLogitStatistics + which) * op.tokens + t];
    };
    float maximum = statistic(0, 0);
    for (Index part = 1; part < op.parts; ++part) maximum = std::max(maximum, statistic(part, 0));
    double sum = 0;
    float target_logit = 0;  // all but one are zero
    for (Index part = 0; part < op.parts; ++part) {
      sum += static_cast<double>(statistic(part, 1)) *
             std::exp(static_cast<double>(statistic(part, 0)) - static_cast<double>(maximum));
      target_logit += statistic(part, 2);
    }
    const float chosen = target_logit - maximum;
    op.losses[t] = static_cast<float>(std::log(sum) - static_cast<double>(chosen));
    if (!op.gradient) continue;
    softmax_times(x, op.vocabulary, maximum, static_cast<double>(op.scale) / sum);
    std::memset(x + op.vocabulary, 0,
                static_cast<std::size_t>(op.columns - op.vocabulary) * sizeof(T));
    if (target >= 0 && target < op.vocabulary)
      store_target_gradient(x + target, chosen, sum, op.scale);
  }
}

void logit_statistics_tokens(const LogitStatistics& op, Range tokens) {
  op.type == DType::f32 ? statistics_of<float>(op, tokens) : statistics_of<bfloat16>(op, tokens);
}

void cross_entropy_of_part_tokens(const CrossEntropyOfPart& op, Range tokens) {
  op.type == DType::f32 ? cross_entropy_of_part_of<float>(op, tokens)
                        : cross_entropy_of_part_of<bfloat16>(op, tokens);
}

void cross_entropy_tokens(const CrossEntropy& op, Range tokens) {
  if (op.type == DType::f32)
    cross_entropy_of<float>(op, tokens);
  else
    cross_entropy_of<bfloat16>(op, tokens);
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {
HWY_EXPORT(cross_entropy_tokens);
HWY_EXPORT(logit_statistics_tokens);
HWY_EXPORT(cross_entropy_of_part_tokens);
}  // namespace

void cross_entropy(OpState& /*state*/, Stream& stream, const CrossEntropy& op) {
  require(op.stride >= op.vocabulary, "the pitch of logits is below the vocabulary");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index row = op.vocabulary * size_of(op.type);
    const Index pitch = op.stride * size_of(op.type);
    announce_read(op.targets, op.tokens * 4);
    announce_write(op.losses, op.tokens * 4);
    if (op.gradient)
      announce_write(op.logits, op.tokens, row, pitch);
    else
      announce_read(op.logits, op.tokens, row, pitch);
    for_pieces(own.pool(), row_pieces(op.tokens, op.vocabulary),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(cross_entropy_tokens)(op, rows); });
  });
}

void logit_statistics(OpState& /*state*/, Stream& stream, const LogitStatistics& op) {
  require(op.stride >= op.vocabulary, "the pitch of logits is below the vocabulary");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_read(op.targets, op.tokens * 4);
    announce_read(op.logits, op.tokens, op.vocabulary * size_of(op.type),
                  op.stride * size_of(op.type));
    announce_write(op.statistics, kLogitStatistics * op.tokens * 4);
    for_pieces(own.pool(), row_pieces(op.tokens, op.vocabulary),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(logit_statistics_tokens)(op, rows); });
  });
}

void cross_entropy_of_part(OpState& /*state*/, Stream& stream, const CrossEntropyOfPart& op) {
  require(op.stride >= op.columns && op.columns >= op.vocabulary,
          "the pitch of logits is below the part of the vocabulary");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_read(op.targets, op.tokens * 4);
    announce_read(op.statistics, op.parts * kLogitStatistics * op.tokens * 4);
    announce_write(op.losses, op.tokens * 4);
    if (op.gradient)
      announce_write(op.logits, op.tokens, op.columns * size_of(op.type),
                     op.stride * size_of(op.type));
    for_pieces(own.pool(), row_pieces(op.tokens, op.columns),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(cross_entropy_of_part_tokens)(op, rows); });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
