#include "core/engine/unit_states.h"

namespace megatrain {

UnitStates UnitStates::of(const HostStore& store, Index unit, std::byte* weights,
                          std::byte* states) {
  UnitStates result;
  result.host = states_of(store, unit);
  result.device = result.host;
  const Index moment_bytes = result.host.count * size_of(result.host.moment_type);
  result.device.weights = weights;
  result.device.exp_avg = states;
  result.device.exp_avg_sq = states + moment_bytes;
  if (result.host.remainder != nullptr)
    result.device.remainder = reinterpret_cast<std::int16_t*>(states + 2 * moment_bytes);
  return result;
}

void UnitStates::copy(Stream& stream, const AdamWSlice& to, const AdamWSlice& from) {
  const Index moment_bytes = from.count * size_of(from.moment_type);
  stream.copy(to.weights, from.weights, from.count * from.weight_bytes());
  stream.copy(to.exp_avg, from.exp_avg, moment_bytes);
  stream.copy(to.exp_avg_sq, from.exp_avg_sq, moment_bytes);
  if (from.remainder != nullptr) stream.copy(to.remainder, from.remainder, from.count * 2);
}

}  // namespace megatrain
