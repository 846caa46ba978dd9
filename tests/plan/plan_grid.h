#pragma once
/// @file
/// Choices that together use every feature of a plan, for tests that must hold for all plans.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/writers.h"

namespace megatrain::testing {

struct PlanCase {
  std::string name;
  ModelConfig config;
  Choices choices;
  /// For test reports.
  friend void PrintTo(const PlanCase& c, std::ostream* out) { *out << c.name; }
};

/// A five-block decoder of a few thousand parameters.
ModelConfig grid_config(bool tied);

std::vector<PlanCase> plan_grid();
/// Those that train.
std::vector<PlanCase> training_cases();
/// Plans of a rank of several.
std::vector<PlanCase> several_ranks_cases();
/// @throws LogicError when there is none of this name
PlanCase case_named(std::string_view name);

}  // namespace megatrain::testing
