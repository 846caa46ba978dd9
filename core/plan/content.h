#pragma once
/// @file
/// What each buffer holds while a list is issued in order: the meaning that races cannot show.

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

/// What a buffer holds. Fields that a kind does not name are not compared.
struct Content {
  enum class Kind : std::uint8_t {
    none,
    weights,      ///< unit, version
    states,       ///< optimizer states on the device: unit, version
    slice,        ///< of weights: unit, version; the other ranks' are still to come
    rows,         ///< wave, version of the embedding
    boundary,     ///< what enters `unit`, of micro_batch
    gradient,     ///< d(what enters unit), of micro_batch
    kept,         ///< unit, micro_batch
    recomputed,   ///< unit, micro_batch
    accumulator,  ///< unit; micro-batches [0, next) are in it (next_head: the head's share), of
                  ///< the ranks that `sum` says, and of all parts with `parts`
    wire,         ///< unit, first, count
    finished,     ///< unit: `count` elements of its wire gradient
  };
  /// Whose gradients an accumulator holds. Past `rank`, only this rank's slice of it counts.
  enum class Sum : std::uint8_t { rank, shard_group, all };
  Kind kind = Kind::none;
  Sum sum = Sum::rank;
  bool parts = false;
  std::int32_t unit = -1;
  std::int32_t micro_batch = -1;
  std::int32_t wave = -1;
  std::int32_t next = 0;
  std::int32_t next_head = 0;
  std::int64_t version = 0;
  Index first = 0, count = 0;
  bool operator==(const Content&) const = default;
};

class ContentTracker {
 public:
  explicit ContentTracker(const Plan& plan);

  /// A run of the prologue (updates: false), the body or the epilogue begins.
  void begin_run(bool updates);
  /// Follows one instruction. @returns what it would read wrongly; empty when all is as it should
  std::string issue(const InstructionList& list, const Instruction& instruction);
  /// After a run: every slot released, every unit's state handed over.
  std::string end_of_run();

 private:
  using Kind = Content::Kind;
  [[nodiscard]] Content& at(BufferId id) { return contents_[static_cast<std::size_t>(id)]; }
  void write(BufferId id, const Content& content);
  /// Adds a micro-batch to an accumulator. @returns what is wrong, or nothing
  std::string accumulate(BufferId id, const Instruction& instruction, std::int32_t unit,
                         bool head_share);
  std::string expect(BufferId id, const Content& expected, std::string_view what);
  /// Slabs are of the instruction's unit; tokens and losses of its micro-batch.
  std::string expect_places(const InstructionList& list, const Instruction& instruction) const;
  std::string expect_weights(const InstructionList& list, const Instruction& instruction);
  /// What a slot has of a unit before the other ranks' slices come.
  [[nodiscard]] Kind held_kind() const;
  /// The newest weights of a unit, or their slice.
  [[nodiscard]] Content newest(Kind kind, std::int32_t unit) const;
  /// An accumulator of the instruction's unit that holds this sum. @returns what is wrong, or
  /// nothing
  std::string expect_sum(const InstructionList& list, const Instruction& instruction,
                         Content::Sum sum);
  /// What the ranks of the plan end with, and what is carried between waves.
  [[nodiscard]] Content::Sum full_sum() const;
  [[nodiscard]] Content::Sum carried_sum() const;
  /// What the device holds of a unit that is updated there. @returns what is wrong, or nothing
  std::string expect_states(const InstructionList& list, const Instruction& instruction);
  std::string update_on_device(const InstructionList& list, const Instruction& instruction);
  std::string compute(const InstructionList& list, const Instruction& instruction);
  std::string move(const InstructionList& list, const Instruction& instruction);

  const Plan& plan_;
  Index batch_begin_ = 0;   ///< where the step's tokens begin on the device
  Index losses_begin_ = 0;  ///< and its losses
  std::vector<Content> contents_;
  std::vector<bool> clean_;                      ///< accumulators: padding is zero
  std::vector<std::vector<BufferId>> overlaps_;  ///< other buffers that share bytes
  std::vector<std::int64_t> versions_;           ///< of each unit's state: updates so far
  std::vector<std::int64_t> host_versions_;      ///< of what the host holds of it
  std::vector<bool> homes_;                      ///< slots that a unit stays in
  std::int64_t runs_ = 0;                        ///< that update every unit
  std::int32_t handed_over_ = 0;                 ///< units in this run
};

}  // namespace megatrain
