#pragma once
/// @file
/// What is known of GPUs and of the CUDA libraries of this build.

#include <string>
#include <string_view>

#include "core/device/cuda/cuda_device.h"

namespace megatrain {

/// Dense bf16 peak in FLOP/s of a GPU by the name that the driver gives it, from NVIDIA's data
/// sheets; 0 when not in the table.
double peak_bf16_flops(std::string_view name);

/// What decides the bits of library calls: architecture, multiprocessors (matmul heuristics look
/// at both) and the versions of cuBLASLt and cuDNN.
std::string cuda_numerics(const CudaProperties& properties);

/// The architectures that this build's kernels were compiled for, as a list for messages.
std::string_view built_architectures();

/// Whether this build holds kernels that the current GPU can run.
bool has_kernels_for_current_gpu();

}  // namespace megatrain
