#pragma once
/// @file
/// CUDA status codes as exceptions.

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

namespace megatrain {

/// Throws Error naming what was done, the CUDA error and where, unless `status` is success. The
/// error is taken from the runtime, so that it does not come up again at the next launch.
void check(cudaError_t status, std::string_view what,
           std::source_location where = std::source_location::current());

}  // namespace megatrain
