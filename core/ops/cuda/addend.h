#pragma once
/// @file
/// What a product is added to, where the library does not do it by itself.

#include "core/ops/gemm.h"

struct CUstream_st;

namespace megatrain::ops::cuda {

/// D[m,n] = (C ? C[m,n] : 0) + (bias ? bias[n] : 0): what is left of `op` without its product.
void write_addend(CUstream_st* stream, const Gemm& op);

}  // namespace megatrain::ops::cuda
