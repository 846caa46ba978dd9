#pragma once
/// @file
/// How the CPU's ops cut their work. Pieces are fixed by the shape alone, so results never depend
/// on the number of threads.

#include <algorithm>

#include "core/base/thread_pool.h"
#include "core/ops/common.h"

namespace megatrain::ops::cpu {

/// Elements that are worth handing to a thread.
inline constexpr Index kPieceElements = 16384;

/// A half-open range.
struct Range {
  Index begin = 0, end = 0;
};

/// `count` things cut into pieces of `size`.
struct Pieces {
  Index count = 0, size = 1;
  [[nodiscard]] constexpr Index number() const { return ceil_div(count, size); }
  [[nodiscard]] constexpr Range at(Index piece) const {
    return {piece * size, std::min(count, (piece + 1) * size)};
  }
};

/// Rows of `columns` elements, cut so that a piece is worth a thread's while.
constexpr Pieces row_pieces(Index rows, Index columns) {
  return {rows, std::max<Index>(1, kPieceElements / std::max<Index>(1, columns))};
}

/// The row groups of a column sum (common.h): kReductionRows each while 1024 of them suffice.
constexpr Pieces column_sum_pieces(Index rows) {
  return {rows, std::max(kReductionRows, ceil_div(rows, Index{1024}))};
}

/// body(range) for every piece, on the threads of the pool.
template <class Body>
void for_pieces(ThreadPool& pool, const Pieces& pieces, const Body& body) {
  pool.for_each(pieces.number(), [&](Index piece) { body(pieces.at(piece)); });
}

}  // namespace megatrain::ops::cpu
