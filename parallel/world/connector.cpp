#include "parallel/world/connector.h"

#include <utility>

#include "parallel/gloo/gloo_transport.h"

namespace megatrain::parallel {

namespace {

Connector gloo(const ConnectorOptions& options) {
  const std::shared_ptr<GlooTransport> transport =
      make_gloo_transport({.address = options.address, .timeout = options.timeout});
  return [transport](std::shared_ptr<KeyValueStore> store, const std::string& name, int rank,
                     int size) { return transport->connect(std::move(store), name, rank, size); };
}

}  // namespace

Connector make_connector(DeviceKind kind, const ConnectorOptions& options) {
  switch (kind) {
    case DeviceKind::cpu:
      return gloo(options);
    case DeviceKind::cuda:
      throw UserError(
          "this build cannot connect the GPUs of several ranks; run one process, or all ranks on "
          "their CPUs");
  }
  throw LogicError("internal error: a device of no kind");
}

}  // namespace megatrain::parallel
