#include "parallel/world/connector.h"

#include <utility>

#include "parallel/gloo/gloo_transport.h"
#include "parallel/nccl/nccl_transport.h"

namespace megatrain::parallel {

namespace {

Connector gloo(const ConnectorOptions& options) {
  const std::shared_ptr<GlooTransport> transport =
      make_gloo_transport({.address = options.address,
                           .timeout = options.timeout,
                           .on_collective = options.on_collective});
  return [transport](std::shared_ptr<KeyValueStore> store, const std::string& name, int rank,
                     int size) { return transport->connect(std::move(store), name, rank, size); };
}

Connector nccl(const ConnectorOptions& options) {
  const std::shared_ptr<NcclTransport> transport =
      make_nccl_transport(*options.device, options.timeout, options.on_collective);
  return [transport](std::shared_ptr<KeyValueStore> store, const std::string& name, int rank,
                     int size) { return transport->connect(std::move(store), name, rank, size); };
}

}  // namespace

Connector make_connector(const ConnectorOptions& options) {
  const bool gpu = options.device != nullptr && options.device->info().kind == DeviceKind::cuda;
  return gpu ? nccl(options) : gloo(options);
}

}  // namespace megatrain::parallel
