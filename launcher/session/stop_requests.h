#pragma once
/// @file
/// Whether a run is to end before its last step, and what it then returns.

#include "launcher/session/team.h"
#include "launcher/signals.h"

namespace megatrain::launcher {

/// What any rank was asked, told to all of them at a step's boundary, and once more when a run has
/// ended early.
class StopRequests {
 public:
  StopRequests(Team& team, const StopSignals& signals) : team_(team), signals_(signals) {}

  /// Whether to stop; the same on all ranks, which make the same calls.
  /// @param failed  this rank has another reason
  bool stop(bool failed);
  /// Whether one of those that asked wants the run to go on elsewhere.
  [[nodiscard]] bool requeue() const;
  /// Of a run that ended before its last step. What follows on it must not take it for done.
  [[nodiscard]] int exit_code() const;

 private:
  Team& team_;
  const StopSignals& signals_;
  unsigned asked_ = 0;  ///< bits, of all ranks
};

}  // namespace megatrain::launcher
