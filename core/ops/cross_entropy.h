#pragma once
/// @file
/// Softmax cross-entropy of a chunk of tokens, fused with its gradient.

#include "core/ops/common.h"

namespace megatrain::ops {

/// loss[t] = logsumexp(logits[t]) - logits[t][target]; 0 where target < 0 (not counted).
/// With `gradient`, logits[t,:] becomes (softmax(logits[t]) - onehot(target)) * scale in place,
/// and zeros where target < 0. scale is 1 / (valid tokens of the whole step).
struct CrossEntropy {
  Index tokens = 0, vocabulary = 0, stride = 0;  ///< stride: row pitch of logits, in elements
  DType type = DType::f32;
  void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  float* losses = nullptr;
  bool gradient = true;
  float scale = 1;
};

/// What the loss needs of one part of a divided vocabulary: three rows of `tokens` numbers, the
/// largest logit, the sum of exp(logit - largest), and the target's logit (0 where it is not here).
struct LogitStatistics {
  Index tokens = 0, vocabulary = 0, stride = 0;  ///< vocabulary: logits of this part
  Index first = 0;                               ///< the id of its first
  DType type = DType::f32;
  const void* logits = nullptr;
  const std::int32_t* targets = nullptr;  ///< ids of the whole vocabulary
  float* statistics = nullptr;            ///< [3, tokens]
};
inline constexpr Index kLogitStatistics = 3;

/// CrossEntropy for one part of a divided vocabulary: the same losses on each part, and the
/// gradient of its own logits.
struct CrossEntropyOfPart {
  Index tokens = 0, vocabulary = 0, stride = 0;  ///< as in LogitStatistics
  Index columns = 0;  ///< with `gradient`, those from `vocabulary` to here become zeros
  Index first = 0;
  DType type = DType::f32;
  void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  Index parts = 1;
  const float* statistics = nullptr;  ///< [parts, 3, tokens], of all parts in their order
  float* losses = nullptr;
  bool gradient = true;
  float scale = 1;
};

}  // namespace megatrain::ops
