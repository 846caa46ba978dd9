#pragma once
/// @file
/// A GPU that is a CPU device, and a library with NCCL's names for it whose ranks are threads: so
/// that what is built on NCCL can be tried where there is no GPU. As the real one in its
/// non-blocking mode, it works behind the caller's back, its collectives wait for ever for a peer
/// that does not come, an aborted one leaves garbage, and memory is given back when no kernel of
/// the GPU runs.

#include <memory>

#include "core/device/cuda/cuda_device.h"

namespace megatrain::testing {

std::unique_ptr<Device> make_pretend_gpu(int ordinal);
/// What ncclCommGetAsyncError says from now on of the communicators of a GPU.
void pretend_remote_error(int ordinal);

}  // namespace megatrain::testing
