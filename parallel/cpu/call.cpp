#include "parallel/cpu/call.h"

#include <fmt/core.h>

#include <array>
#include <cstddef>

namespace megatrain {

std::string_view name(Collective collective) {
  constexpr std::array<std::string_view, 7> kNames{
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "sum", "max", "barrier"};
  return kNames[static_cast<std::size_t>(collective)];
}

bool CallOrder::admit(const Stream& stream, Index count) {
  require(count >= 0, "a collective of a negative size");
  if (stream_ == nullptr) stream_ = &stream;
  require(stream_ == &stream, "collectives of one communicator were issued on two streams");
  return count > 0;
}

void require_in_place_or_apart(const void* slice, const void* whole, Index slice_bytes, int rank,
                               int size) {
  const auto* begin = static_cast<const std::byte*>(slice);
  const auto* from = static_cast<const std::byte*>(whole);
  require(begin == from + slice_bytes * rank || begin + slice_bytes <= from ||
              begin >= from + slice_bytes * size,
          "a slice that overlaps the whole, but is not at its rank's place");
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
