#pragma once
/// @file
/// One call of a collective, as every rank of a communicator must make it.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/types.h"
#include "core/device/device.h"

namespace megatrain {

enum class Collective : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  sum,
  max,
  barrier,
};
std::string_view name(Collective collective);

struct Call {
  Collective collective = Collective::barrier;
  std::uint64_t number = 0;  ///< of the communicator's calls, from 1
  Index count = 0;           ///< elements: of a slice, or of all the data where nothing is sliced
  DType type = DType::f32;
  int root = 0;  ///< broadcast
  bool operator==(const Call&) const = default;
};

/// The calls of one communicator's issuing thread: numbered, and their collectives all on one
/// stream.
class CallOrder {
 public:
  /// Whether there is anything to do. @throws LogicError for a second stream, or a negative count
  bool admit(const Stream& stream, Index count);
  Call next(Collective collective, Index count, DType type) {
    return {.collective = collective, .number = ++calls_, .count = count, .type = type};
  }

 private:
  const Stream* stream_ = nullptr;
  std::uint64_t calls_ = 0;
};

/// A slice lies at its rank's place of the whole, or apart from it. @throws LogicError
void require_in_place_or_apart(const void* slice, const void* whole, Index slice_bytes, int rank,
                               int size);

/// "all_gather 7 (4096 bf16 elements)".
std::string describe(const Call& call);

}  // namespace megatrain
