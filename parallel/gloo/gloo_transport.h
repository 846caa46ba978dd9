#pragma once
/// @file
/// Ranks as processes whose CPUs talk through Gloo (TCP). One file of a build without Gloo refuses.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/engine/communicator.h"
#include "parallel/key_value_store.h"

namespace megatrain {

/// Whether this build has Gloo.
bool has_gloo();

struct GlooOptions {
  /// The name or address of this machine that the other ranks can reach.
  std::string address;
  /// How long a collective, and the connecting, waits for a peer.
  std::chrono::milliseconds timeout{30000};
  /// Called as this rank comes to a collective, from the thread that will wait in it; may be empty.
  std::function<void()> on_collective = {};
};

/// A process's end of all its connections, and the thread that serves them.
class GlooTransport {
 public:
  virtual ~GlooTransport() = default;
  /// Connects `size` ranks that make this call with the same name and a store that all of them see.
  /// A size of 1 asks nobody. The name must not have been used in the store before.
  /// A rank that gives up says why in the store, so that the others can name the first cause.
  /// @throws PeerError naming the ranks that did not come in time
  [[nodiscard]] virtual std::unique_ptr<Communicator> connect(std::shared_ptr<KeyValueStore> store,
                                                              const std::string& name, int rank,
                                                              int size) = 0;
};

/// @throws UserError when built without Gloo, or when the address is not one of this machine's
std::unique_ptr<GlooTransport> make_gloo_transport(const GlooOptions& options);

}  // namespace megatrain
