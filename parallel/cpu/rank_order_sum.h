#pragma once
/// @file
/// Sums over ranks that are made on the host.

#include <span>

#include "core/base/bfloat16.h"
#include "core/base/types.h"

namespace megatrain {

/// sum[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ... in fp32. `sum` may be one of the
/// parts, and may not overlap them otherwise.
void sum_in_rank_order(std::span<const float* const> parts, float* sum, Index count);
/// The same sum of bf16 values, rounded once.
void sum_in_rank_order(std::span<const bfloat16* const> parts, bfloat16* sum, Index count);

/// What an agreement makes of `all`, the values of each rank in the order of the ranks: their sums,
/// added in that order.
void sum_in_rank_order(std::span<const double> all, std::span<double> sums);
/// The same for the largest value: NaN when one is NaN.
double largest(std::span<const double> all);

}  // namespace megatrain
