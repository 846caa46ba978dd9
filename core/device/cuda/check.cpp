#include "core/device/cuda/check.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/device/cuda/cuda_device.h"

namespace megatrain {

void check(cudaError_t status, std::string_view what, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  std::string_view file = where.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);
  throw Error(fmt::format("CUDA: {}: {} ({}, {}:{})", what, cudaGetErrorString(status),
                          cudaGetErrorName(status), file, where.line()));
}

void check_launch(std::string_view what) {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(fmt::format("CUDA: launching {}: {} ({})", what, cudaGetErrorString(status),
                            cudaGetErrorName(status)));
}

}  // namespace megatrain
