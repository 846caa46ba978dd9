#pragma once
/// @file
/// Connections between every two ranks of a group, as Gloo's collectives want them.

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/key_value_store.h"

namespace megatrain {

/// Gloo's own rendezvous says neither who is missing nor within which time; this one does.
class GlooMesh final : public ::gloo::Context {
 public:
  GlooMesh(int own_rank, int ranks) : ::gloo::Context(own_rank, ranks) {}
  /// Meets the other ranks in `store` under `name`, and connects to each.
  /// @throws PeerError naming who is missing when `timeout` has passed
  void connect(const std::shared_ptr<::gloo::transport::Device>& device, KeyValueStore& store,
               const std::string& name, std::chrono::milliseconds timeout);

 private:
  /// @returns why a peer could not be reached; nothing when all were
  std::string try_connect(KeyValueStore& store, const std::string& meeting,
                          std::chrono::milliseconds timeout,
                          std::chrono::milliseconds connect_limit);
  /// Puts `own` into the store. @returns what each other rank put there under its key, by rank. Two
  /// requests, however many ranks there are
  std::vector<std::string> meet(KeyValueStore& store, const std::string& name,
                                std::span<const KeyValueStore::Entry> own,
                                const std::function<std::string(int of)>& key,
                                std::chrono::milliseconds timeout) const;
};

}  // namespace megatrain
