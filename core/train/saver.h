#pragma once
/// @file
/// Who decides which steps are saved, and takes their state.

#include "core/engine/state_reader.h"
#include "core/train/train_state.h"

namespace megatrain {

class Saver {
 public:
  virtual ~Saver() = default;
  /// Called at the boundary after every step, and before the first where there is none. @returns
  /// the reader that the units of this state go to while training goes on, nullptr when this step
  /// is not saved. The reader must live until every unit has been handed to it. An exception ends
  /// training at this boundary.
  /// @param ending  no step follows: a signal, or the last one
  virtual StateReader* begin(const TrainState& state, bool ending) = 0;
};

}  // namespace megatrain
