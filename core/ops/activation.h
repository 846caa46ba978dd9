#pragma once
/// @file
/// The non-linearities of the MLP: SwiGLU (Shazeer 2020, eq. 6) and GELU in its tanh form
/// (Hendrycks & Gimpel 2016, section 2), which is transformers' gelu_new / gelu_pytorch_tanh.

#include "core/ops/common.h"

namespace megatrain::ops {

/// y[r,c] = silu(gate[r,c]) * up[r,c].
struct SwigluForward {
  Index rows = 0, columns = 0;
  DType type = DType::f32;
  const void* gate = nullptr;
  const void* up = nullptr;
  Index in_stride = 0;  ///< row pitch of gate and of up
  void* y = nullptr;    ///< [rows, columns], dense
};

/// dgate, dup from dy, written over gate and up in place.
struct SwigluBackward {
  Index rows = 0, columns = 0;
  DType type = DType::f32;
  void* gate = nullptr;  ///< in: gate, out: dgate
  void* up = nullptr;    ///< in: up, out: dup
  Index in_stride = 0;
  const void* dy = nullptr;  ///< [rows, columns], dense
};

/// y = gelu_tanh(x), element-wise on `count` elements.
struct GeluForward {
  Index count = 0;
  DType type = DType::f32;
  const void* x = nullptr;
  void* y = nullptr;
};

/// x becomes dy * gelu_tanh'(x), in place.
struct GeluBackward {
  Index count = 0;
  DType type = DType::f32;
  void* x = nullptr;
  const void* dy = nullptr;
};

}  // namespace megatrain::ops
