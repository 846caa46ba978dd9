#include "core/engine/instruction_graphs.h"

#include <algorithm>

namespace megatrain {

void InstructionGraphs::run(std::size_t instruction, const std::function<void()>& enqueue) {
  Entry& entry = entries_[instruction];
  if (!entry.ran) {
    enqueue();
    entry.ran = true;
    return;
  }
  if (!entry.graph) entry.graph = stream_.capture(enqueue);
  stream_.launch(*entry.graph);
}

Index InstructionGraphs::captured() const {
  return std::ranges::count_if(entries_, [](const Entry& entry) { return entry.graph != nullptr; });
}

}  // namespace megatrain
