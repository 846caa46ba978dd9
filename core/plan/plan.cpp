#include "core/plan/plan.h"

#include <fmt/format.h>

namespace megatrain {

std::string_view name(StreamId stream) {
  static constexpr std::array<std::string_view, kStreams> kNames = {
      "compute", "fetch", "offload", "spill", "gather", "scatter", "update", "host", "snapshot"};
  return kNames[static_cast<std::size_t>(stream)];
}

std::string_view name(OpCode op) {
  static constexpr std::array<std::string_view, 31> kNames = {
      "stage",      "upload",         "update",     "state up", "device update", "state down",
      "gather",     "fetch",          "all-gather", "embed",    "forward",       "spill",
      "unspill",    "head",           "evaluate",   "logits",   "recompute",     "backward",
      "zero",       "embed backward", "sum parts",  "carry up", "carry down",    "reduce-scatter",
      "all-reduce", "reduce",         "offload",    "release",  "download",      "collect",
      "snapshot"};
  static_assert(static_cast<std::size_t>(OpCode::snapshot) + 1 == kNames.size());
  return kNames[static_cast<std::size_t>(op)];
}

BufferId InstructionList::find(const Instruction& i, Role role) const {
  for (const Operand& operand : operands_of(i))
    if (operand.role == role) return operand.buffer;
  return -1;
}

BufferId InstructionList::buffer(const Instruction& i, Role role) const {
  const BufferId id = find(i, role);
  if (id < 0)
    throw LogicError(fmt::format("internal error: instruction '{}' has no operand with role {}",
                                 name(i.op), static_cast<int>(role)));
  return id;
}

std::string describe(const Instruction& instruction, Index units) {
  std::string text(name(instruction.op));
  if (instruction.unit == 0)
    text += " embedding";
  else if (instruction.unit == units - 1)
    text += " head";
  else if (instruction.unit > 0)
    text += fmt::format(" block {}", instruction.unit - 1);
  if (instruction.micro_batch >= 0) text += fmt::format(" micro-batch {}", instruction.micro_batch);
  if (instruction.wave > 0) text += fmt::format(" wave {}", instruction.wave);
  return text;
}

}  // namespace megatrain
