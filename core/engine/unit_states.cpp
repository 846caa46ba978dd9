#include "core/engine/unit_states.h"

namespace megatrain {

UnitStates UnitStates::of(const HostStore& store, Index unit, std::byte* weights,
                          std::byte* states) {
  UnitStates result;
  result.host = states_of(store, unit);
  const Index count = result.device.count = result.host.count;
  result.device.weights = weights;
  result.device.exp_avg = reinterpret_cast<float*>(states);
  result.device.exp_avg_sq = result.device.exp_avg + count;
  if (result.host.remainder != nullptr)
    result.device.remainder = reinterpret_cast<std::int16_t*>(result.device.exp_avg_sq + count);
  return result;
}

void UnitStates::copy(Stream& stream, const AdamWSlice& to, const AdamWSlice& from) {
  const bool split = from.remainder != nullptr;
  stream.copy(to.weights, from.weights, from.count * (split ? 2 : 4));
  stream.copy(to.exp_avg, from.exp_avg, from.count * 4);
  stream.copy(to.exp_avg_sq, from.exp_avg_sq, from.count * 4);
  if (split) stream.copy(to.remainder, from.remainder, from.count * 2);
}

}  // namespace megatrain
