#include "core/ops/cpu/kernels.h"
#include "core/ops/ops.h"

namespace megatrain::ops {

/// In cuda/ or, in a build without CUDA (whose headers need the toolkit), in cuda_missing.cpp.
Ops make_cuda_ops(Device& device, DType compute);

Ops make_ops(Device& device, DType compute) {
  if (device.info().kind == DeviceKind::cuda) return make_cuda_ops(device, compute);
  return cpu::make_cpu_ops(device.info(), compute);
}

}  // namespace megatrain::ops
