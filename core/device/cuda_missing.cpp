// The CUDA device in a build without CUDA: refuses by name.

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/device/range.h"

namespace megatrain {

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& /*options*/) {
  throw UserError(
      "device 'cuda' was asked for, but this build has no CUDA: use --device cpu, or configure "
      "with -DMEGATRAIN_CUDA=ON where nvcc is installed");
}

int cuda_device_count() { return 0; }

DeviceRange::DeviceRange(const char* /*name*/) {}
DeviceRange::~DeviceRange() = default;

}  // namespace megatrain
