#include "parallel/gloo/gloo_transport.h"

#include <fmt/core.h>
#include <gloo/transport/tcp/device.h>

#include "core/engine/solo_communicator.h"
#include "parallel/cpu/cpu_communicator.h"
#include "parallel/gloo/gloo_collectives.h"
#include "parallel/gloo/quiet_pipes.h"

namespace megatrain {

namespace {

std::shared_ptr<::gloo::transport::Device> open_device(const GlooOptions& options) {
  if (options.address.empty())
    throw UserError("Gloo needs the address of this machine that the other ranks can reach");
  ::gloo::transport::tcp::attr attributes(options.address.c_str());
  const QuietPipes quiet;  // for the thread that this starts
  try {
    return ::gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw UserError(
        fmt::format("Gloo cannot listen at '{}', which must be an address of this "
                    "machine: {}",
                    options.address, error.what()));
  }
}

class Transport final : public GlooTransport {
 public:
  explicit Transport(const GlooOptions& options)
      : timeout_(options.timeout),
        on_collective_(options.on_collective),
        device_(open_device(options)) {}

  [[nodiscard]] std::unique_ptr<Communicator> connect(std::shared_ptr<KeyValueStore> store,
                                                      const std::string& name, int rank,
                                                      int size) override {
    require(size > 0 && rank >= 0 && rank < size, "a communicator with a rank outside its size");
    if (size == 1) return make_solo_communicator(name);
    auto mesh = std::make_shared<GlooMesh>(rank, size);
    mesh->connect(device_, *store, name, timeout_);
    return make_cpu_communicator(
        name, rank, size,
        std::make_shared<GlooCollectives>(std::move(mesh), std::move(store), name, on_collective_));
  }

 private:
  const std::chrono::milliseconds timeout_;
  const std::function<void()> on_collective_;
  const std::shared_ptr<::gloo::transport::Device> device_;
};

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<GlooTransport> make_gloo_transport(const GlooOptions& options) {
  return std::make_unique<Transport>(options);
}

}  // namespace megatrain
