#include "parallel/nccl/nccl_transport.h"

#include <utility>

#include "core/engine/solo_communicator.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/nccl/nccl_end.h"
#include "parallel/nccl/nccl_watch.h"

namespace megatrain {

namespace {

CudaDevice& gpu(Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  require(cuda != nullptr, "NCCL connects GPUs, and this device is none");
  return *cuda;
}

class Transport final : public NcclTransport {
 public:
  Transport(Device& device, std::chrono::milliseconds timeout, std::function<void()> on_collective)
      : device_(gpu(device)),
        timeout_(timeout),
        on_collective_(std::move(on_collective)),
        watch_(std::make_shared<NcclWatch>(device_)) {}

  [[nodiscard]] std::unique_ptr<Communicator> connect(std::shared_ptr<KeyValueStore> store,
                                                      const std::string& name, int rank,
                                                      int size) override {
    require(size > 0 && rank >= 0 && rank < size, "a communicator with a rank outside its size");
    if (size == 1) return make_solo_communicator(name);
    return make_nccl_communicator(device_, watch_,
                                  std::make_shared<NcclEnd>(device_, std::move(store), name, rank,
                                                            size, timeout_, on_collective_),
                                  name, rank, size);
  }

 private:
  CudaDevice& device_;
  const std::chrono::milliseconds timeout_;
  const std::function<void()> on_collective_;
  const std::shared_ptr<NcclWatch> watch_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<NcclTransport> make_nccl_transport(Device& device,
                                                   std::chrono::milliseconds timeout,
                                                   std::function<void()> on_collective) {
  return std::make_unique<Transport>(device, timeout, std::move(on_collective));
}

}  // namespace megatrain
