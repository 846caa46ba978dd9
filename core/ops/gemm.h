#pragma once
/// @file
/// Matrix product.

#include "core/ops/common.h"

namespace megatrain::ops {

/// D[m,n] = op(A)[m,k] . op(B)[k,n] + C[m,n] + bias[n], row-major, products and sums in fp32,
/// rounded once when D is written.
///
/// op(A) is A as stored ([m,k], row pitch lda) or, with transpose_a, its transpose (A is [k,m]).
/// C, when given, has D's type and pitch `ldc`; c == d accumulates in place. So a residual
/// connection is C, and a gradient that accumulates over micro-batches is c == d.
struct Gemm {
  Index m = 0, n = 0, k = 0;
  const void* a = nullptr;
  Index lda = 0;
  bool transpose_a = false;
  const void* b = nullptr;
  Index ldb = 0;
  bool transpose_b = false;
  DType in = DType::f32;  ///< type of A, B and bias
  void* d = nullptr;
  Index ldd = 0;
  DType out = DType::f32;   ///< type of C and D
  const void* c = nullptr;  ///< nullptr: none
  Index ldc = 0;
  const void* bias = nullptr;  ///< nullptr: none
  Workspace workspace;         ///< library scratch, at least kGemmWorkspace bytes on CUDA
};

/// The cap on a matmul library's scratch, part of every plan: algorithms that want more are not
/// considered.
inline constexpr Index kGemmWorkspace = Index{32} << 20;

/// db[n] (+)= sum over rows of dy[rows,n] in a fixed order; db in fp32.
struct BiasGradient {
  Index rows = 0, columns = 0;
  const void* dy = nullptr;
  Index ld = 0;
  DType type = DType::f32;
  float* db = nullptr;
  bool accumulate = false;
  Workspace workspace;  ///< column_sum_workspace(rows, columns)
};

}  // namespace megatrain::ops
