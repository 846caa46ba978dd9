#pragma once
/// @file
/// What the op headers share. An op is a plain struct of arguments; kernels take raw device
/// pointers, pitches in elements, and 64-bit sizes. Unless said otherwise matrices are row-major,
/// a "row" is a token, in-place use is allowed only where the header says so, sums that become a
/// gradient are made in a fixed order (no float atomics), and arithmetic is fp32 whatever the
/// storage type.

#include <cstdint>

#include "core/base/types.h"

namespace megatrain::ops {

/// Scratch memory that an op may overwrite; 256-byte aligned.
struct Workspace {
  void* data = nullptr;
  Index bytes = 0;
};

/// Rows that one partial sum covers in every op that reduces over tokens. Fixed, so that the
/// order of additions does not depend on the device's size or the number of threads.
inline constexpr Index kReductionRows = 64;

/// Scratch of a sum over `rows` rows into `columns` fp32 results: a partial per row group, at
/// most 1024 groups (groups grow beyond that).
constexpr Index column_sum_groups(Index rows) {
  const Index groups = ceil_div(rows, kReductionRows);
  return groups < 1024 ? groups : 1024;
}
constexpr Index column_sum_workspace(Index rows, Index columns) {
  return round_up(column_sum_groups(rows) * columns * 4, 256);
}

}  // namespace megatrain::ops
