#pragma once
/// @file
/// What a run is about to do, for a person.

#include "io/dataset.h"
#include "launcher/console.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"

namespace megatrain::launcher {

/// What a step will take, and by which rates: measured ones where the options name a file of them,
/// else assumed ones.
struct Prediction {
  Rates rates;
  Simulation simulation;
};
Prediction predict(const RunOptions& options, const Machine& machine, const Plan& plan);

/// "compute", or in words what else the step waits for most.
std::string bound_text(const Simulation& simulation);

/// Model, device, choices, memory peaks and predicted step.
void print_banner(Console& console, const ModelSource& source, const Model& model,
                  const Machine& machine, const RunPlans& plans, const Prediction& prediction);

/// What the memory of a store took to make.
void print_store(Console& console, const HostStore& store);

/// How many tokens there are of what is given.
void print_data(Console& console, const io::Dataset& data);

}  // namespace megatrain::launcher
