#include "parallel/cpu/rank_order_sum.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace megatrain {

namespace {

float widen(float value) { return value; }
float widen(bfloat16 value) { return to_float(value); }
void narrow(float value, float& into) { into = value; }
void narrow(float value, bfloat16& into) { into = to_bfloat16(value); }

template <class T>
void add_up(std::span<const T* const> parts, T* sum, Index count) {
  // A piece is added up aside: `sum` may be a part that is still to be read.
  constexpr Index kPiece = 1024;
  std::array<float, kPiece> piece{};
  for (Index begin = 0; begin < count; begin += kPiece) {
    const Index length = std::min(kPiece, count - begin);
    const auto in_piece = [&](Index i) -> float& { return piece[static_cast<std::size_t>(i)]; };
    for (Index i = 0; i < length; ++i) in_piece(i) = widen(parts.front()[begin + i]);
    for (const T* part : parts.subspan(1))
      for (Index i = 0; i < length; ++i) in_piece(i) += widen(part[begin + i]);
    for (Index i = 0; i < length; ++i) narrow(in_piece(i), sum[begin + i]);
  }
}

}  // namespace

void sum_in_rank_order(std::span<const float* const> parts, float* sum, Index count) {
  add_up(parts, sum, count);
}

void sum_in_rank_order(std::span<const bfloat16* const> parts, bfloat16* sum, Index count) {
  add_up(parts, sum, count);
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
