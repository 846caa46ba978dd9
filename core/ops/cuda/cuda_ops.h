#pragma once
/// @file
/// What the CUDA device's op functions keep between calls. One host thread at a time may use it.

#include <memory>

#include "core/device/cuda/cuda_device.h"
#include "core/ops/cuda/attention_cudnn.h"
#include "core/ops/cuda/gemm_library.h"
#include "core/ops/ops.h"

namespace megatrain::ops {

/// The CUDA kernels of `device`. @throws LogicError when it is no CUDA device
Ops make_cuda_ops(Device& device, DType compute);

namespace cuda {

struct CudaOpState final : OpState {
  /// Opens the libraries that `compute` needs, so that their memory is in use from the start.
  CudaOpState(CudaDevice& gpu, DType compute);

  CudaDevice& device;
  GemmLibrary gemms;
  std::unique_ptr<CudnnAttention> cudnn;
};

}  // namespace cuda
}  // namespace megatrain::ops
