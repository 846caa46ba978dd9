#include "parallel/cpu/rank_order_sum.h"

#include <algorithm>
#include <array>
#include <cmath>

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

void sum_in_rank_order(std::span<const double> all, std::span<double> sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = all[i];
    for (std::size_t at = i + sums.size(); at < all.size(); at += sums.size()) sums[i] += all[at];
  }
}

double largest(std::span<const double> all) {
  double result = all.front();
  for (const double value : all) {
    if (std::isnan(value)) return value;
    result = std::fmax(result, value);
  }
  return result;
}

}  // namespace megatrain
