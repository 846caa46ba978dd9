#pragma once
/// @file
/// The bias of products that the library does not fuse it into.

#include "core/ops/gemm.h"

struct CUstream_st;

namespace megatrain::ops::cuda {

/// D[m,n] = D[m,n] + bias[n], of op.d and op.bias in their types.
void add_row(CUstream_st* stream, const Gemm& op);

}  // namespace megatrain::ops::cuda
