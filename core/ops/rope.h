#pragma once
/// @file
/// Rotary position embedding (Su et al. 2021, eq. 34) in the rotate-half (NeoX) arrangement:
/// element i pairs with element i + head_dim / 2.

#include "core/ops/common.h"

namespace megatrain::ops {

/// Rotates `heads` heads of every token in place. Token t has position t % sequence; its first
/// head begins at x + t * token_stride, heads follow one another every head_dim elements.
/// inverse applies the transposed rotation, which is the backward pass.
struct Rope {
  Index tokens = 0, sequence = 0, heads = 0, head_dim = 0, token_stride = 0;
  DType type = DType::f32;
  void* x = nullptr;
  const float* cosine = nullptr;  ///< [max positions, head_dim / 2], attention factor included
  const float* sine = nullptr;
  bool inverse = false;
};

}  // namespace megatrain::ops
