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

}  // namespace megatrain::ops
