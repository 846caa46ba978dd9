#include <algorithm>
#include <array>

#include "core/base/bfloat16.h"
#include "core/base/error.h"
#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/gemm.h"

namespace megatrain::ops::cpu {

namespace {

/// Columns whose sums stay in the first-level cache while rows pass.
constexpr Index kColumns = 512;

float widen(float value) { return value; }
float widen(bfloat16 value) { return to_float(value); }

/// sums[j] = x[first_row, j] + ... + x[end_row - 1, j], in that order.
template <class T>
void sum_rows(const T* x, Index pitch, Index first_row, Index end_row, Index columns, float* sums) {
  for (Index first = 0; first < columns; first += kColumns) {
    const Index count = std::min(kColumns, columns - first);
    std::array<float, kColumns> partial{};
    for (Index row = first_row; row < end_row; ++row) {
      const T* values = x + row * pitch + first;
      for (Index j = 0; j < count; ++j) partial[j] += widen(values[j]);
    }
    std::copy_n(partial.data(), count, sums + first);
  }
}

void run(ThreadPool& pool, const BiasGradient& op) {
  // Two levels: groups of rows into partials, partials in order into db.
  auto* partials = static_cast<float*>(op.workspace.data);
  const Pieces groups = column_sum_pieces(op.rows);
  pool.for_each(groups.number(), [&](Index group) {
    const auto [begin, end] = groups.at(group);
    float* sums = partials + group * op.columns;
    if (op.type == DType::f32)
      sum_rows(static_cast<const float*>(op.dy), op.ld, begin, end, op.columns, sums);
    else
      sum_rows(static_cast<const bfloat16*>(op.dy), op.ld, begin, end, op.columns, sums);
  });
  const Pieces columns{op.columns, kColumns};
  pool.for_each(columns.number(), [&](Index piece) {
    const auto [first, end] = columns.at(piece);
    const Index count = end - first;
    std::array<float, kColumns> sums;
    sum_rows(partials + first, op.columns, 0, groups.number(), count, sums.data());
    for (Index j = 0; j < count; ++j)
      op.db[first + j] = op.accumulate ? op.db[first + j] + sums[j] : sums[j];
  });
}

}  // namespace

void bias_gradient(OpState& /*state*/, Stream& stream, const BiasGradient& op) {
  require(op.rows >= 0 && op.columns >= 0 && op.ld >= op.columns, "shape of a bias gradient");
  require(op.workspace.bytes >= column_sum_workspace(op.rows, op.columns),
          "the workspace of a bias gradient is too small");
  if (op.columns == 0) return;
  CpuStream& own = cpu_stream(stream);
  own.enqueue([&own, op] {
    announce_read(op.dy, op.rows, op.columns * size_of(op.type), op.ld * size_of(op.type));
    announce_write(op.workspace.data, column_sum_groups(op.rows) * op.columns * 4);
    announce_write(op.db, op.columns * 4);
    run(own.pool(), op);
  });
}

}  // namespace megatrain::ops::cpu
