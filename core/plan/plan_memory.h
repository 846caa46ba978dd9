#pragma once
/// @file
/// What the memories hold for a plan: sums before its lists are written, and the table by name.

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

/// Bytes that a plan allocates.
struct PlanBytes {
  Index device = 0;
  Index pinned = 0;
  Index store = 0;
  [[nodiscard]] Index host() const { return pinned + store; }
};

/// What a plan for these choices allocates, without writing its lists.
PlanBytes plan_bytes(const Model& model, const Choices& choices);

/// Device memory that the driver is taken to need for the graphs of a plan, beside its arena.
Index graph_bytes(const Model& model, const Choices& choices);

/// Device memory in which a GPU's driver keeps where so many bytes of pinned host memory lie.
Index page_table_bytes(Index host_bytes);

/// One line of the memory table: buffers that differ only in their numbers, together.
struct MemoryRow {
  MemorySpace space = MemorySpace::device;
  std::string name;
  Index count = 0;
  Index bytes = 0;  ///< of all of them
};
/// What the plan allocates, by name; the rows of a space add up to its arena. Store rows are the
/// host store's slabs.
std::vector<MemoryRow> memory_table(const Plan& plan, const Model& model);

}  // namespace megatrain
