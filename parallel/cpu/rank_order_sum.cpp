#include "parallel/cpu/rank_order_sum.h"

#include <algorithm>
#include <array>

namespace megatrain {

void sum_in_rank_order(std::span<const float* const> parts, float* sum, Index count) {
  // A piece is added up aside: `sum` may be a part that is still to be read.
  constexpr Index kPiece = 1024;
  std::array<float, kPiece> piece{};
  for (Index begin = 0; begin < count; begin += kPiece) {
    const Index length = std::min(kPiece, count - begin);
    std::copy_n(parts.front() + begin, length, piece.begin());
    for (const float* part : parts.subspan(1))
      for (Index i = 0; i < length; ++i) piece[static_cast<std::size_t>(i)] += part[begin + i];
    std::copy_n(piece.begin(), length, sum + begin);
  }
}

}  // namespace megatrain
