#pragma once
/// @file
/// Who takes a copy of the training state, while training goes on.

#include "core/base/types.h"

namespace megatrain {

/// Receives the state of one step, unit by unit. A unit's state is final from its update until its
/// next one, a step later, so it is handed over in that time and nothing needs to stand still.
class StateReader {
 public:
  virtual ~StateReader() = default;
  /// The master, moments and format of `unit` in the host store are those of the step that is being
  /// read, and do not change until this returns. Called for every unit once, in order, by a thread
  /// of the engine's that has nothing else to do: taking long delays only this unit's next update.
  /// Failures are the reader's to keep and to report: training must not stop here.
  virtual void unit(Index unit) noexcept = 0;
};

}  // namespace megatrain
