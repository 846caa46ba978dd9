#pragma once
/// @file
/// What a run is about to do, for a person.

#include "io/dataset.h"
#include "launcher/console.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"

namespace megatrain::launcher {

/// Measured rates when the options name a file of them, else assumed ones.
Rates find_rates(const RunOptions& options, const Machine& machine);

/// "compute", or in words what else the step waits for most.
std::string bound_text(const Simulation& simulation);

/// Model, device, choices, memory peaks and predicted step.
void print_banner(Console& console, const ModelSource& source, const Model& model,
                  const Machine& machine, const RunPlans& plans, const RunOptions& options);

/// How many tokens there are of what is given.
void print_data(Console& console, const io::Dataset& data);

}  // namespace megatrain::launcher
