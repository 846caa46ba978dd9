#include "parallel/cpu/call.h"

#include <fmt/core.h>

#include <array>

namespace megatrain {

std::string_view name(Collective collective) {
  constexpr std::array<std::string_view, 7> kNames{
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "sum", "max", "barrier"};
  return kNames[static_cast<std::size_t>(collective)];
}

std::string describe(const Call& call) {
  std::string start = fmt::format("{} {}", name(call.collective), call.number);
  switch (call.collective) {
    case Collective::broadcast:
      return fmt::format("{} ({} {} elements of rank {})", start, call.count, name(call.type),
                         call.root);
    case Collective::sum:
    case Collective::max:
      return fmt::format("{} ({} values)", start, call.count);
    case Collective::barrier:
      return start;
    default:
      return fmt::format("{} ({} {} elements)", start, call.count, name(call.type));
  }
}

}  // namespace megatrain
