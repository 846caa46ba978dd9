#pragma once
/// @file
/// Ranks whose GPUs talk through NCCL. One file of a build without NCCL refuses.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/engine/communicator.h"
#include "parallel/key_value_store.h"

namespace megatrain {

/// Whether this build has NCCL.
bool has_nccl();

/// A GPU's end of all its communicators, and the threads that watch them.
///
/// Its communicators end together: what one has in the GPU's memory cannot be given back while a
/// kernel of another waits for a peer that is gone.
class NcclTransport {
 public:
  virtual ~NcclTransport() = default;
  /// Connects `size` ranks that make this call with the same name and a store that all of them see.
  /// Each has a GPU of its own. A size of 1 asks nobody. The name must not have been used in the
  /// store before. Collectives take streams of the transport's GPU, and memory of it.
  /// @throws PeerError naming the ranks that did not come in time
  [[nodiscard]] virtual std::unique_ptr<Communicator> connect(std::shared_ptr<KeyValueStore> store,
                                                              const std::string& name, int rank,
                                                              int size) = 0;
};

/// @param device   a GPU; outlives the transport and its communicators
/// @param timeout  how long a collective, and the connecting, waits for a peer
/// @param on_collective  called when the GPU is seen to have come to a collective; may be empty
/// @throws UserError when built without NCCL
std::unique_ptr<NcclTransport> make_nccl_transport(Device& device,
                                                   std::chrono::milliseconds timeout,
                                                   std::function<void()> on_collective = {});

}  // namespace megatrain
