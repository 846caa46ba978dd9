#include "core/device/range.h"

#include <nvtx3/nvToolsExt.h>

namespace megatrain {

DeviceRange::DeviceRange(const char* name) { nvtxRangePushA(name); }
DeviceRange::~DeviceRange() { nvtxRangePop(); }

}  // namespace megatrain
