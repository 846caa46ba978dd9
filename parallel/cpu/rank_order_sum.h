#pragma once
/// @file
/// The one sum over ranks of the CPU's communicators.

#include <span>

#include "core/base/bfloat16.h"
#include "core/base/types.h"

namespace megatrain {

/// sum[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ... in fp32. `sum` may be one of the
/// parts, and may not overlap them otherwise.
void sum_in_rank_order(std::span<const float* const> parts, float* sum, Index count);
/// The same sum of bf16 values, rounded once.
void sum_in_rank_order(std::span<const bfloat16* const> parts, bfloat16* sum, Index count);

}  // namespace megatrain
