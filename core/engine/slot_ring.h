#pragma once
/// @file
/// The states of the slots, owned by one object; misuse throws.

#include <cstdint>
#include <map>
#include <string_view>

#include "core/plan/plan.h"

namespace megatrain {

enum class SlotState : std::uint8_t {
  empty,    ///< nothing in it, or released
  filling,  ///< a fetch into it is enqueued
  ready,    ///< work that reads it was ordered behind the fetch
  in_use,   ///< a visit is enqueued
};
std::string_view name(SlotState state);

/// Follows the slots in the order of issue. A slot that is fetched while in use, read before it is
/// fetched, read for another unit, or released twice is a LogicError, not a corrupt model.
class SlotRing {
 public:
  void fetch(BufferId slot, std::int32_t unit);
  /// The consumer's stream waits for the fetch from here on.
  void ready(BufferId slot, std::int32_t unit);
  void use(BufferId slot, std::int32_t unit);
  void release(BufferId slot, std::int32_t unit);
  /// The weights are updated where they are, and stay: this slot is never released.
  void update(BufferId slot, std::int32_t unit);
  [[nodiscard]] SlotState state(BufferId slot) const;
  /// True when every slot is empty whose unit does not stay: the end of a body.
  [[nodiscard]] bool all_empty() const;

 private:
  struct Slot {
    SlotState state = SlotState::empty;
    std::int32_t unit = -1;
    bool stays = false;
  };
  Slot& expect(BufferId slot, std::int32_t unit, std::string_view what, bool allowed);
  std::map<BufferId, Slot> slots_;
};

}  // namespace megatrain
