#pragma once
/// @file
/// Proves a plan before its first step, from the lists alone: nothing of the planner is trusted.

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

/// What the checker found. Empty: the plan is proved.
struct CheckReport {
  std::vector<std::string> problems;
  [[nodiscard]] bool ok() const { return problems.empty(); }
  [[nodiscard]] std::string text() const;
};

/// Unrolls prologue, two bodies, two epilogues (a flush after a flush) and one more body, and
/// proves that
///  - accesses to the same bytes that conflict are ordered by streams and waits (no race), as in
///    issue order;
///  - every read finds what it should: a slot the newest weights of its unit, a block the boundary
///    of its micro-batch, an accumulator all earlier micro-batches, the host a finished gradient;
///  - every unit's state is handed over once a run, in order, as this run's update left it;
///  - every fetched slot is released;
///  - host work never waits for the device but at the end of a body, and the end of a body leaves
///    nothing running but snapshots;
///  - none but updates and snapshots wait for a snapshot;
///  - buffers of one space lie inside it.
CheckReport check(const Plan& plan);

/// Throws LogicError with the report when there is a problem.
void require_checked(const Plan& plan);

}  // namespace megatrain
