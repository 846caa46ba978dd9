#include "core/plan/forward_list.h"
#include "core/plan/train_list.h"
#include "core/plan/writers.h"

namespace megatrain {

Plan make_plan(const Model& model, const Choices& choices) {
  validate(choices, model);
  Plan plan;
  plan.choices = choices;
  plan.units = model.unit_count();
  for (const Unit& unit : model.units()) plan.sums_parts.push_back(unit.sums_over_parts());
  PlanBuilder builder(plan);
  const Layout layout(model, choices, builder);
  // The first body has nothing behind it but the prologue; the second is the one that repeats.
  InstructionList first_body;
  if (choices.purpose == Purpose::train) {
    TrainListWriter writer(model, choices, layout, builder);
    writer.prologue(plan.prologue);
    writer.body(first_body);
    writer.body(plan.body);
    for (std::size_t i = 0; i < plan.body.instructions.size(); ++i)
      if (const OpCode op = plan.body.instructions[i].op;
          op == OpCode::update || op == OpCode::device_update || op == OpCode::state_down ||
          op == OpCode::snapshot)
        plan.epilogue.push_back(static_cast<std::int32_t>(i));
  } else {
    ForwardListWriter writer(model, choices, layout, builder);
    writer.prologue(plan.prologue);
    writer.body(first_body);
    writer.body(plan.body);
  }
  return plan;
}

}  // namespace megatrain
