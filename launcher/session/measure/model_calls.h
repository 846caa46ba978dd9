#pragma once
/// @file
/// The kernels that a model calls in a micro-batch, each measured by itself at its own shape.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ops/work.h"
#include "core/plan/choices.h"
#include "launcher/session/machine.h"

namespace megatrain::launcher {

/// One kernel at one shape.
struct MeasuredCall {
  std::string pass;   ///< "forward", "backward"; of products "dX" and "dW"; "head ..." for the head
  std::string op;     ///< ops::name()
  std::string shape;  ///< ops::shape_text()
  Index count = 0;    ///< calls of it in a micro-batch: all blocks, forward and backward, and head
  ops::Work work;     ///< of one call
  double seconds = 0;  ///< of one call
};

/// Calls that are of one kind, together.
struct CallRate {
  double work = 0;     ///< of all calls of a micro-batch
  double seconds = 0;  ///< they take
  /// Work a second; `otherwise` when there is none.
  [[nodiscard]] double rate(double otherwise) const {
    return seconds > 0 ? work / seconds : otherwise;
  }
};

/// Measures forward and backward of every block and a visit of the head, at the micro-batch and by
/// the kernels of `choices`. Recompute repeats forward and is not measured again.
std::vector<MeasuredCall> measure_calls(Machine& machine, const Model& model,
                                        const Choices& choices);

/// Measures what walks a unit's slab on the device: the update, and a gradient on its way down; of
/// the largest unit, or as much of it as no cache holds.
std::vector<MeasuredCall> measure_slab_calls(Machine& machine, const Model& model,
                                             const Choices& choices);

/// Sums what `part` takes of each call's work, weighted by how often it is called.
/// @param op  only calls of this one; empty: of all
CallRate together(std::span<const MeasuredCall> calls, double ops::Work::* part,
                  std::string_view op = {});

}  // namespace megatrain::launcher
