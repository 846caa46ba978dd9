#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <cmath>

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE float row_mean(const T* x, Index columns) {
  FloatVec sum = hn::Zero(Floats());
  for_lanes(columns, [&](Index c, auto span) HWY_ATTR { sum = hn::Add(sum, load(x + c, span)); });
  return sum_of(sum) / static_cast<float>(columns);
}

/// mean((x - center)^2)
template <class T>
HWY_INLINE float row_square_mean(const T* x, Index columns, float center) {
  FloatVec sum = hn::Zero(Floats());
  for_lanes(columns, [&](Index c, auto span) HWY_ATTR {
    const FloatVec v = only(hn::Sub(load(x + c, span), hn::Set(Floats(), center)), span);
    sum = hn::MulAdd(v, v, sum);
  });
  return sum_of(sum) / static_cast<float>(columns);
}

template <class T>
void forward_rows_of(const NormForward& op, Range rows) {
  const Floats d;
  const auto* weight = static_cast<const T*>(op.weight);
  const auto* bias = static_cast<const T*>(op.bias);
  for (Index r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(op.x) + op.x_rows.offset(r);
    T* y = static_cast<T*>(op.y) + op.y_rows.offset(r);
    const bool layer = op.kind == NormKind::layer;
    const float mean = layer ? row_mean(x, op.columns) : 0.0F;
    const float rstd = 1.0F / std::sqrt(row_square_mean(x, op.columns, mean) + op.eps);
    op.rstd[r] = rstd;
    if (layer) op.mean[r] = mean;
    const FloatVec means = hn::Set(d, mean);
    const FloatVec rstds = hn::Set(d, rstd);
    if (!layer) {
      for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
        const FloatVec xhat = rounded_to<T>(hn::Mul(load(x + c, span), rstds));
        store(hn::Mul(xhat, load(weight + c, span)), y + c, span);
      });
    } else {
      for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
        const FloatVec xhat = hn::Mul(hn::Sub(load(x + c, span), means), rstds);
        const FloatVec b = bias != nullptr ? load(bias + c, span) : hn::Zero(d);
        store(hn::MulAdd(xhat, load(weight + c, span), b), y + c, span);
      });
    }
  }
}

/// dx of some rows; their sums of dy * xhat and dy go to `dweight` and `dbias`.
template <class T>
void backward_rows_of(const NormBackward& op, Range rows, float* dweight, float* dbias) {
  const Floats d;
  const bool layer = op.kind == NormKind::layer;
  const auto* weight = static_cast<const T*>(op.weight);
  std::fill_n(dweight, op.columns, 0.0F);
  if (dbias != nullptr) std::fill_n(dbias, op.columns, 0.0F);
  for (Index r = rows.begin; r < rows.end; ++r) {
    const T* x = static_cast<const T*>(op.x) + op.x_rows.offset(r);
    const T* dy = static_cast<const T*>(op.dy) + op.dy_rows.offset(r);
    const T* add =
        op.add != nullptr ? static_cast<const T*>(op.add) + op.dx_rows.offset(r) : nullptr;
    T* dx = static_cast<T*>(op.dx) + op.dx_rows.offset(r);
    const FloatVec mean = hn::Set(d, layer ? op.mean[r] : 0.0F);
    const FloatVec rstd = hn::Set(d, op.rstd[r]);
    FloatVec g_sum = hn::Zero(d);
    FloatVec gx_sum = hn::Zero(d);
    for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
      const FloatVec xhat = hn::Mul(hn::Sub(load(x + c, span), mean), rstd);
      const FloatVec dyv = load(dy + c, span);
      const FloatVec g = hn::Mul(dyv, load(weight + c, span));
      g_sum = hn::Add(g_sum, g);
      gx_sum = hn::MulAdd(g, xhat, gx_sum);
      store(hn::MulAdd(dyv, xhat, load(dweight + c, span)), dweight + c, span);
      if (dbias != nullptr) store(hn::Add(load(dbias + c, span), dyv), dbias + c, span);
    });
    const auto n = static_cast<float>(op.columns);
    const FloatVec g_mean = hn::Set(d, layer ? sum_of(g_sum) / n : 0.0F);
    const FloatVec gx_mean = hn::Set(d, sum_of(gx_sum) / n);
    for_lanes(op.columns, [&](Index c, auto span) HWY_ATTR {
      const FloatVec xhat = hn::Mul(hn::Sub(load(x + c, span), mean), rstd);
      const FloatVec g = hn::Mul(load(dy + c, span), load(weight + c, span));
      const FloatVec inner = hn::NegMulAdd(xhat, gx_mean, hn::Sub(g, g_mean));
      const FloatVec base = add != nullptr ? load(add + c, span) : hn::Zero(d);
      store(hn::MulAdd(inner, rstd, base), dx + c, span);
    });
  }
}

void norm_forward_rows(const NormForward& op, Range rows) {
  if (op.type == DType::f32)
    forward_rows_of<float>(op, rows);
  else
    forward_rows_of<bfloat16>(op, rows);
}

void norm_backward_rows(const NormBackward& op, Range rows, float* dweight, float* dbias) {
  if (op.type == DType::f32)
    backward_rows_of<float>(op, rows, dweight, dbias);
  else
    backward_rows_of<bfloat16>(op, rows, dweight, dbias);
}

/// sum[c] (+)= partials[0][c] + partials[1][c] + ... in this order.
void sum_partials(const float* partials, Index groups, Index columns, Range range, bool accumulate,
                  float* sum) {
  for_lanes(range.end - range.begin, [&](Index offset, auto span) HWY_ATTR {
    const Index c = range.begin + offset;
    FloatVec total = hn::Zero(Floats());
    for (Index g = 0; g < groups; ++g)
      total = hn::Add(total, load(partials + g * columns + c, span));
    if (accumulate) total = hn::Add(load(sum + c, span), total);
    store(total, sum + c, span);
  });
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {

HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_backward_rows);
HWY_EXPORT(sum_partials);

/// The rows of a RowMap as ranges: one per outer index when heads do not fill it.
template <class Announce>
void announce_rows(const RowMap& map, Index rows, Index columns, DType type, Announce announce) {
  const Index size = size_of(type);
  for (Index i = 0; i < std::min(map.inner, rows); ++i)
    announce(i * map.inner_stride * size, ceil_div(rows - i, map.inner), columns * size,
             map.outer_stride * size);
}

void announce_row_reads(const void* data, const RowMap& map, Index rows, Index columns,
                        DType type) {
  announce_rows(map, rows, columns, type, [&](Index offset, Index n, Index bytes, Index pitch) {
    announce_read(static_cast<const std::byte*>(data) + offset, n, bytes, pitch);
  });
}

void announce_row_writes(void* data, const RowMap& map, Index rows, Index columns, DType type) {
  announce_rows(map, rows, columns, type, [&](Index offset, Index n, Index bytes, Index pitch) {
    announce_write(static_cast<std::byte*>(data) + offset, n, bytes, pitch);
  });
}

}  // namespace

void norm_forward(OpState& /*state*/, Stream& stream, const NormForward& op) {
  require(op.rstd != nullptr && (op.kind == NormKind::rms || op.mean != nullptr),
          "a norm needs room for its statistics");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index size = size_of(op.type);
    announce_row_reads(op.x, op.x_rows, op.rows, op.columns, op.type);
    announce_read(op.weight, op.columns * size);
    if (op.bias != nullptr) announce_read(op.bias, op.columns * size);
    announce_row_writes(op.y, op.y_rows, op.rows, op.columns, op.type);
    announce_write(op.rstd, op.rows * 4);
    if (op.kind == NormKind::layer) announce_write(op.mean, op.rows * 4);
    for_pieces(own.pool(), row_pieces(op.rows, op.columns),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(norm_forward_rows)(op, rows); });
  });
}

void norm_backward(OpState& /*state*/, Stream& stream, const NormBackward& op) {
  require(op.workspace.bytes >= norm_backward_workspace(op.rows, op.columns),
          "the workspace of a norm's backward is too small");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index size = size_of(op.type);
    announce_row_reads(op.x, op.x_rows, op.rows, op.columns, op.type);
    announce_row_reads(op.dy, op.dy_rows, op.rows, op.columns, op.type);
    if (op.add != nullptr) announce_row_reads(op.add, op.dx_rows, op.rows, op.columns, op.type);
    announce_read(op.weight, op.columns * size);
    announce_read(op.rstd, op.rows * 4);
    if (op.kind == NormKind::layer) announce_read(op.mean, op.rows * 4);
    announce_row_writes(op.dx, op.dx_rows, op.rows, op.columns, op.type);
    announce_write(op.dweight, op.columns * 4);
    if (op.dbias != nullptr) announce_write(op.dbias, op.columns * 4);
    announce_write(op.workspace.data, norm_backward_workspace(op.rows, op.columns));

    const Pieces groups = column_sum_pieces(op.rows);
    auto* const dweights = static_cast<float*>(op.workspace.data);
    float* const dbiases =
        op.dbias != nullptr ? dweights + column_sum_workspace(op.rows, op.columns) / 4 : nullptr;
    own.pool().for_each(groups.number(), [&](Index group) {
      HWY_DYNAMIC_DISPATCH(norm_backward_rows)
      (op, groups.at(group), dweights + group * op.columns,
       dbiases != nullptr ? dbiases + group * op.columns : nullptr);
    });
    const Pieces columns = {op.columns, 256};
    own.pool().for_each(columns.number(), [&](Index piece) {
      const auto sum = HWY_DYNAMIC_DISPATCH(sum_partials);
      sum(dweights, groups.number(), op.columns, columns.at(piece), op.accumulate, op.dweight);
      if (op.dbias != nullptr)
        sum(dbiases, groups.number(), op.columns, columns.at(piece), op.accumulate, op.dbias);
    });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
