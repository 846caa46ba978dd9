#include "core/engine/slot_ring.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain {

std::string_view name(SlotState state) {
  switch (state) {
    case SlotState::empty:
      return "empty";
    case SlotState::filling:
      return "filling";
    case SlotState::ready:
      return "ready";
    case SlotState::in_use:
      return "in use";
  }
  return "?";
}

SlotRing::Slot& SlotRing::expect(BufferId slot, std::int32_t unit, std::string_view what,
                                 bool allowed) {
  Slot& s = slots_[slot];
  if (!allowed)
    throw LogicError(fmt::format("internal error: {} for unit {} in slot {}, which is {}{}", what,
                                 unit, slot, name(s.state),
                                 s.unit >= 0 ? fmt::format(" for unit {}", s.unit) : ""));
  return s;
}

void SlotRing::fetch(BufferId slot, std::int32_t unit) {
  Slot& s = expect(slot, unit, "fetch", slots_[slot].state == SlotState::empty);
  s = {SlotState::filling, unit, false};
}

void SlotRing::ready(BufferId slot, std::int32_t unit) {
  const Slot& now = slots_[slot];
  Slot& s = expect(slot, unit, "wait", now.state != SlotState::empty && now.unit == unit);
  if (s.state == SlotState::filling) s.state = SlotState::ready;
}

void SlotRing::use(BufferId slot, std::int32_t unit) {
  const Slot& now = slots_[slot];
  const bool filled = now.state == SlotState::ready || now.state == SlotState::in_use;
  expect(slot, unit, "use", filled && now.unit == unit).state = SlotState::in_use;
}

void SlotRing::release(BufferId slot, std::int32_t unit) {
  const Slot& now = slots_[slot];
  const bool used = now.state == SlotState::in_use && now.unit == unit && !now.stays;
  expect(slot, unit, "release", used) = {};
}

void SlotRing::update(BufferId slot, std::int32_t unit) {
  const Slot& now = slots_[slot];
  Slot& s = expect(slot, unit, "update", now.state != SlotState::empty && now.unit == unit);
  s.state = SlotState::ready;
  s.stays = true;
}

SlotState SlotRing::state(BufferId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? SlotState::empty : found->second.state;
}

bool SlotRing::all_empty() const {
  return std::ranges::all_of(
      slots_, [](const auto& s) { return s.second.stays || s.second.state == SlotState::empty; });
}

}  // namespace megatrain
