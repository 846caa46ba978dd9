#pragma once
/// @file
/// One call of a collective, as every rank of a communicator must make it.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/types.h"

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

/// A slice lies at its rank's place of the whole, or apart from it. @throws LogicError
void require_in_place_or_apart(const void* slice, const void* whole, Index slice_bytes, int rank,
                               int size);

/// "all_gather 7 (4096 bf16 elements)".
std::string describe(const Call& call);

}  // namespace megatrain
