#include "core/ops/cpu/kernels.h"
#include "core/ops/ops.h"

namespace megatrain::ops {

Ops make_cuda_ops(Device& device, DType compute);

Ops make_ops(Device& device, DType compute) {
  if (device.info().kind == DeviceKind::cuda) return make_cuda_ops(device, compute);
  return cpu::make_cpu_ops(compute);
}

}  // namespace megatrain::ops
