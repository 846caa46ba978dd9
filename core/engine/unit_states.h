#pragma once
/// @file
/// The states of a unit that is updated on the device: where they live there, and their copy in the
/// host store.

#include "core/device/device.h"
#include "core/optim/unit_update.h"

namespace megatrain {

struct UnitStates {
  AdamWSlice device;  ///< its gradient is the one on the wire
  AdamWSlice host;    ///< no gradient

  /// @param weights  where the slice that the host holds begins in the unit's slot
  /// @param states   both moments, then the remainder of split masters, of that slice
  static UnitStates of(const HostStore& store, Index unit, std::byte* weights, std::byte* states);

  /// Enqueue copies of all of it.
  void up(Stream& stream) const { copy(stream, device, host); }
  void down(Stream& stream) const { copy(stream, host, device); }

 private:
  static void copy(Stream& stream, const AdamWSlice& to, const AdamWSlice& from);
};

}  // namespace megatrain
