#include <nvtx3/nvToolsExt.h>

#include "core/device/cuda/cuda_device.h"

namespace megatrain {

DeviceRange::DeviceRange(const char* name) { nvtxRangePushA(name); }
DeviceRange::~DeviceRange() { nvtxRangePop(); }

}  // namespace megatrain
