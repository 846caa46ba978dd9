#include "parallel/nccl/nccl_transport.h"

namespace megatrain {

bool has_nccl() { return false; }

std::unique_ptr<NcclTransport> make_nccl_transport(Device& /*device*/,
                                                   std::chrono::milliseconds /*timeout*/,
                                                   std::function<void()> /*on_collective*/) {
  throw UserError(
      "this build has no NCCL, which several ranks on GPUs need; install libnccl-dev and build "
      "again with -DMEGATRAIN_CUDA=ON, or run one process, or all ranks on their CPUs");
}

}  // namespace megatrain
