#pragma once
/// @file
/// The communicator of GPUs.

#include <memory>
#include <string>

#include "core/device/cuda/cuda_device.h"
#include "core/engine/communicator.h"
#include "parallel/nccl/nccl_end.h"
#include "parallel/nccl/nccl_watch.h"

namespace megatrain {

/// Connects `end`, and has it watched as long as the communicator lives. @throws PeerError
std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device,
                                                     std::shared_ptr<NcclWatch> watch,
                                                     std::shared_ptr<NcclEnd> end, std::string name,
                                                     int rank, int size);

}  // namespace megatrain
