#pragma once
/// @file
/// Predicts a step from its lists and measured rates: each stream is a queue, an instruction
/// starts when its stream, its waits and the issuing thread let it. Copies in one direction share
/// the link, whatever their streams; copies and updates share the host's memory.

#include "core/plan/plan.h"
#include "core/plan/rates.h"
#include "core/plan/trace.h"

namespace megatrain {

struct Simulation {
  double step_seconds = 0;              ///< of a steady body
  std::array<double, kStreams> busy{};  ///< seconds each stream works in it
  Trace trace;                          ///< of that body
  /// The stream that is busiest; compute-bound when that is `compute`.
  [[nodiscard]] StreamId bound() const;
};

/// Seconds that an instruction computes, by what it does: launches and waits left out.
struct ComputeSeconds {
  double products = 0;
  double attention = 0;
  double element_wise = 0;
  [[nodiscard]] double total() const { return products + attention + element_wise; }
};
ComputeSeconds compute_seconds(const Instruction& instruction, const Rates& rates);

/// @param alone  rates of one rank that has its machine to itself; see shared_by()
Simulation simulate(const Plan& plan, const Rates& alone);
/// The seconds of a steady body alone.
double predict_seconds(const Plan& plan, const Rates& alone);

}  // namespace megatrain
