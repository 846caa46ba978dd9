#pragma once
/// @file
/// The writers of instruction lists: choices in, plan out. They decide the order of the work;
/// waits follow from what each instruction reads and writes (core/plan/builder.h).

#include "core/plan/plan.h"

namespace megatrain {

/// A plan for choices that are valid for `model`; a pure function.
/// @throws UserError as validate(choices, model) does
Plan make_plan(const Model& model, const Choices& choices);

}  // namespace megatrain
