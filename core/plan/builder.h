#pragma once
/// @file
/// Writes instruction lists: the caller names the instructions in program order with what they
/// read and write, the builder finds the fewest waits that make any interleaving of the streams
/// give the program's result.

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

/// Byte ranges of one memory space with the last write and the reads since, split on demand.
class Scoreboard {
 public:
  struct Range {
    Index end = 0;
    std::int32_t write = -1;
    Clock reads = kNothingEnded;  ///< the latest of each stream since the write
  };
  /// Calls visit(Range&) for every range inside [begin, end), splitting at the edges.
  template <class Visit>
  void visit(Index begin, Index end, Visit&& visit);

 private:
  void split(Index at);
  std::map<Index, Range> ranges_;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(Plan& plan) : plan_(plan) {}

  /// A new allocation at the end of its space, 256-byte aligned (pinned: 4096). -1 for no bytes.
  BufferId allocate(std::string name, MemorySpace space, Index bytes);
  /// A named part of an allocation.
  BufferId view(std::string name, BufferId of, Index offset, Index bytes);
  /// A slab of the host store.
  BufferId store(std::string name, std::int32_t unit, Index bytes);

  /// Instructions that follow go to `list`. Marks where a body begins; call it twice with a list
  /// each to get the waits of a steady body in the second.
  void begin(InstructionList& list);
  /// Appends an instruction; operands with buffer -1 are left out.
  void add(Instruction instruction, std::span<const Operand> operands);

 private:
  struct Issued {
    StreamId stream;
    Clock clock;
  };
  Scoreboard& scoreboard(MemorySpace space) {
    return scoreboards_[static_cast<std::size_t>(space)];
  }

  Plan& plan_;
  InstructionList* list_ = nullptr;
  std::int32_t list_begin_ = 0;      ///< sequence number of the list's first instruction
  std::int32_t previous_begin_ = 0;  ///< and of the list before it
  std::array<Scoreboard, 3> scoreboards_;
  std::array<Index, 3> space_bytes_{};
  std::vector<Issued> issued_;
  Clock last_of_stream_ = kNothingEnded;
};

}  // namespace megatrain
