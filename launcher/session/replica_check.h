#pragma once
/// @file
/// Compares what replicas hold: they make the same updates, so a bit that differs is a fault of a
/// machine, which training would carry on for ever.

#include "core/base/thread_pool.h"
#include "core/engine/engine.h"
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
  Team& team_;
  Engine& engine_;
  const HostStore& store_;
  ThreadPool& pool_;
  Index every_;
};

}  // namespace megatrain::launcher
