#pragma once
/// @file
/// The ranks of a run as those who write files together.

#include <chrono>

#include "io/checkpoint/peers.h"
#include "parallel/world/world.h"

namespace megatrain::launcher {

/// How long ranks wait for one another outside of steps: one may write or load for long where
/// another has nothing to do. That they live is watched all the time.
inline constexpr parallel::Milliseconds kAsLongAsTheyLive = std::chrono::hours(24);

class WorldPeers final : public io::Peers {
 public:
  /// @param world  must outlive it
  explicit WorldPeers(parallel::World& world) : world_(world) {}

  [[nodiscard]] int rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  std::vector<std::string> exchange(const std::string& name, std::string_view bytes) override;

 private:
  parallel::World& world_;
};

}  // namespace megatrain::launcher
