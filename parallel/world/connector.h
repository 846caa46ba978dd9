#pragma once
/// @file
/// The one place that knows which library connects the ranks of which kind of device.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/engine/communicator.h"
#include "parallel/key_value_store.h"

namespace megatrain::parallel {

struct ConnectorOptions {
  /// Whose memory the communicators work on; outlives them. nullptr: that of the CPU.
  Device* device = nullptr;
  /// An address of this machine that the other ranks can reach.
  std::string address;
  /// How long a collective, and the connecting, waits for a peer.
  std::chrono::milliseconds timeout{30'000};
  /// Called as this rank comes to a collective, from any thread; may be empty.
  std::function<void()> on_collective = {};
};

/// Makes a communicator of `size` > 1 ranks that make this call with the same name and a store that
/// all of them see and nobody has used before. @throws PeerError when ranks do not come in time, or
/// the store knows that they never will
using Connector = std::function<std::unique_ptr<Communicator>(
    std::shared_ptr<KeyValueStore> store, const std::string& name, int rank, int size)>;

/// The connector of ranks whose devices are of one kind.
/// @throws UserError when this build has none for it
Connector make_connector(const ConnectorOptions& options);

}  // namespace megatrain::parallel
