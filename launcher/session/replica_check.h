#pragma once
/// @file
/// Compares what replicas hold, and what all parts of a model hold: they make the same updates, so
/// a bit that differs is a fault of a machine, which training would carry on for ever.

#include <functional>
#include <span>
#include <string_view>

#include "core/base/thread_pool.h"
#include "core/engine/engine.h"
#include "io/checkpoint/checksum.h"
#include "launcher/session/team.h"

namespace megatrain::launcher {

class ReplicaCheck {
 public:
  /// @param every  steps between two checks; 0: never
  ReplicaCheck(Team& team, Engine& engine, const HostStore& store, ThreadPool& pool, Index every)
      : team_(team), engine_(engine), store_(store), pool_(pool), every_(every) {}

  /// At the boundary after step `step`. When it is due, flushes, and compares.
  /// @throws Error naming the unit and the ranks that hold different states of it
  void after(Index step);

 private:
  /// Adds what ranks have in common of a unit.
  using Common = std::function<void(io::ChecksumStream&, const HostStore&, Index unit)>;
  void compare(Index step, std::string_view what, std::span<const int> group, const Common& common);

  Team& team_;
  Engine& engine_;
  const HostStore& store_;
  ThreadPool& pool_;
  Index every_;
};

}  // namespace megatrain::launcher
