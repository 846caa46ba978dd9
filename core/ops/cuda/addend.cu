#include "core/ops/cuda/addend.h"

#include <cuda_bf16.h>

#include "core/device/cuda/cuda_device.h"

namespace megatrain::ops::cuda {

namespace {

constexpr int kThreads = 256;
constexpr Index kMaxBlocks = 65535;

__device__ float to_float(float value) { return value; }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void store(float* to, float value) { *to = value; }
__device__ void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

/// C may be D, so neither is restrict; each element is read before it is written.
template <class Out, class Bias>
__global__ void addend_kernel(Out* d, Index ldd, const Out* c, Index ldc, const Bias* bias,
                              Index rows, Index columns) {
  const Index column = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  const float addend = bias == nullptr ? 0.0f : to_float(bias[column]);
  for (Index row = blockIdx.y; row < rows; row += gridDim.y) {
    const float start = c == nullptr ? 0.0f : to_float(c[row * ldc + column]);
    store(d + row * ldd + column, start + addend);
  }
}

template <class Out, class Bias>
void launch(cudaStream_t stream, const Gemm& op) {
  const dim3 grid(static_cast<unsigned>(ceil_div(op.n, kThreads)),
                  static_cast<unsigned>(op.m < kMaxBlocks ? op.m : kMaxBlocks));
  addend_kernel<<<grid, kThreads, 0, stream>>>(static_cast<Out*>(op.d), op.ldd,
                                               static_cast<const Out*>(op.c), op.ldc,
                                               static_cast<const Bias*>(op.bias), op.m, op.n);
  check_launch("the addend of a product");
}

}  // namespace

void write_addend(CUstream_st* stream, const Gemm& op) {
  if (op.out == DType::bf16)
    launch<__nv_bfloat16, __nv_bfloat16>(stream, op);
  else if (op.in == DType::bf16)
    launch<float, __nv_bfloat16>(stream, op);
  else
    launch<float, float>(stream, op);
}

}  // namespace megatrain::ops::cuda
