#pragma once
/// @file
/// From options to plans: what `train` runs and `plan` prints.

#include <optional>
#include <string>

#include "core/plan/plan.h"
#include "core/plan/planner.h"
#include "launcher/session/machine.h"
#include "launcher/session/numerics_key.h"
#include "parallel/streaming/data_ranks.h"

namespace megatrain::launcher {

/// The plans of a run. Arenas are sized for the larger one.
struct RunPlans {
  Plan train;
  std::optional<Plan> evaluate;
  Index driver_bytes = 0;          ///< of the device's memory, beside the arena and the reserve
  std::string key;                 ///< numerics_key of the training plan
  std::vector<std::string> notes;  ///< for a person
  [[nodiscard]] Index device_bytes() const;
  [[nodiscard]] Index pinned_bytes() const;
};

/// @param rates  what plans are told apart by
/// @param key    what the run must give the bits of; nullopt: the planner is free
/// @param ranks  of the run, which share each step evenly; the plan is this one's
/// @throws UserError when the batch cannot be cut, a forced choice or key cannot be met, or the
///         budget is too small
RunPlans plan_run(const RunOptions& options, const Machine& machine, const Model& model,
                  const Rates& rates, const std::optional<SavedKey>& key,
                  const DataRanks& ranks = DataRanks::alone());

/// A plan that gives the logits of one sequence of at most `context` tokens.
Plan plan_generation(const MachineOptions& options, const Machine& machine, const Model& model,
                     Index context);

/// The rates that plans and predictions go by: those of --rates, else assumed ones.
Rates rates_of(const RunOptions& options, const Machine& machine);

/// One line on what the planner chose.
std::string describe(const Choices& choices, const Model& model);

}  // namespace megatrain::launcher
