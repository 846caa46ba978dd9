#pragma once
/// @file
/// RMSNorm (Zhang & Sennrich 2019, eq. 4) and LayerNorm (Ba et al. 2016, eq. 4), over the last
/// dimension, on rows that may be strided in two levels (a head inside packed qkv).

#include "core/ops/common.h"

namespace megatrain::ops {

enum class NormKind : std::uint8_t { rms, layer };

/// Where row r of a matrix begins: base + (r / inner) * outer_stride + (r % inner) * inner_stride.
/// A plain matrix has inner = 1 and outer_stride = columns.
struct RowMap {
  Index inner = 1;
  Index outer_stride = 0;
  Index inner_stride = 0;
  [[nodiscard]] constexpr Index offset(Index row) const {
    return row / inner * outer_stride + row % inner * inner_stride;
  }
};

/// y = x * rstd * weight (rms), or (x - mean) * rstd * weight + bias (layer), where
/// rstd = 1 / sqrt(mean(x^2) + eps) or 1 / sqrt(var(x) + eps). With bf16 storage the normalised
/// value is rounded to bf16 before it is multiplied by the weight, as the Llama family does; the
/// layer kind rounds once, at the end.
struct NormForward {
  NormKind kind = NormKind::rms;
  Index rows = 0, columns = 0;
  DType type = DType::f32;
  const void* x = nullptr;
  RowMap x_rows;
  const void* weight = nullptr;
  const void* bias = nullptr;  ///< layer kind only; nullptr: none
  float eps = 0;
  void* y = nullptr;  ///< may be x with the same map
  RowMap y_rows;
  float* rstd = nullptr;  ///< [rows]
  float* mean = nullptr;  ///< [rows], layer kind only
};

/// dx = (add ? add : 0) + d(norm)/dx . dy ; dweight (+)= sum dy * xhat ; dbias (+)= sum dy.
/// Exact derivative of the fp32 formula (the bf16 rounding is treated as the identity).
struct NormBackward {
  NormKind kind = NormKind::rms;
  Index rows = 0, columns = 0;
  DType type = DType::f32;
  const void* x = nullptr;
  RowMap x_rows;
  const void* weight = nullptr;
  const float* rstd = nullptr;
  const float* mean = nullptr;
  const void* dy = nullptr;
  RowMap dy_rows;
  const void* add = nullptr;  ///< residual gradient [rows] with dx's map; nullptr: none
  void* dx = nullptr;         ///< may be `add`, or dy with the same map
  RowMap dx_rows;
  float* dweight = nullptr;  ///< [columns]
  float* dbias = nullptr;    ///< [columns]; nullptr: none
  bool accumulate = false;
  Workspace workspace;  ///< norm_backward_workspace(rows, columns)
};

constexpr Index norm_backward_workspace(Index rows, Index columns) {
  return 2 * column_sum_workspace(rows, columns);
}

}  // namespace megatrain::ops
