#pragma once
/// @file
/// Choices by name, as --force spells them.

#include "core/plan/planner.h"

namespace megatrain {

/// Sets one choice. @throws UserError naming the known choices, or what the value should be
void force(Choices& choices, const Model& model, std::string_view name, std::string_view value);

/// True when the request fixes this choice.
bool is_forced(const PlanRequest& request, std::string_view name);

}  // namespace megatrain
