/// @file
/// Small fp32 matrix products in cache, compiled once per instruction set. Include after
/// simd-inl.h. The order of additions is the order of the inner index, whatever the tile.

#if defined(MEGATRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MEGATRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#undef MEGATRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#else
#define MEGATRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#endif

#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

/// Rows and widths of every tile are padded to this: whole register blocks on every set.
constexpr Index kTilePad = 16;
static_assert(hn::MaxLanes(Floats()) <= kTilePad);

/// The left factor: element (row, inner) is data[row * row_stride + inner * inner_stride]; so a
/// transposed tile is only another pair of strides.
struct LeftTile {
  const float* data;
  Index row_stride, inner_stride;
};

/// Rows of a register block: 32 registers hold 16 accumulators beside the operands, 16 hold 8.
constexpr Index kBlockRows = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;

template <int kVectors>
HWY_INLINE void product_block(LeftTile a, const float* b, Index b_pitch, Index inner, float* c,
                              Index c_pitch, bool accumulate) {
  const Floats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  FloatVec sum[kBlockRows][kVectors];
#pragma GCC unroll 8
  for (Index r = 0; r < kBlockRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_pitch + v * lanes) : hn::Zero(d);
  for (Index k = 0; k < inner; ++k) {
    FloatVec right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * b_pitch + v * lanes);
    const float* left = a.data + k * a.inner_stride;
#pragma GCC unroll 8
    for (Index r = 0; r < kBlockRows; ++r) {
      const FloatVec l = hn::Set(d, left[r * a.row_stride]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(l, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (Index r = 0; r < kBlockRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_pitch + v * lanes);
}

/// c[rows, columns] (+)= a[rows, inner] . b[inner, columns], where the tiles reach to the next
/// multiple of kTilePad rows and columns: the padding is computed too.
HWY_INLINE void tile_product(LeftTile a, const float* b, Index b_pitch, Index rows, Index columns,
                             Index inner, float* c, Index c_pitch, bool accumulate) {
  const auto lanes = static_cast<Index>(hn::Lanes(Floats()));
  for (Index column = 0; column < columns; column += 2 * lanes) {
    for (Index row = 0; row < rows; row += kBlockRows) {
      const LeftTile left = {a.data + row * a.row_stride, a.row_stride, a.inner_stride};
      float* const out = c + row * c_pitch + column;
      if (columns - column > lanes)
        product_block<2>(left, b + column, b_pitch, inner, out, c_pitch, accumulate);
      else
        product_block<1>(left, b + column, b_pitch, inner, out, c_pitch, accumulate);
    }
  }
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
