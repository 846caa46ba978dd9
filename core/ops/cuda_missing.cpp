// CUDA kernels in a build without CUDA. No CUDA device can exist here, so reaching this is a bug.

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace megatrain::ops {

Ops make_cuda_ops(Device& /*device*/, DType /*compute*/) {
  throw LogicError("kernels of a CUDA device were asked for in a build without CUDA");
}

}  // namespace megatrain::ops
