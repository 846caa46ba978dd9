#pragma once
/// @file
/// Tiles of bf16 in shared memory and their products on the tensor cores.

#include "core/ops/cuda/mma.cuh"

namespace megatrain::ops::cuda {

/// A tile of rows of kColumns bf16 in shared memory. The pitch is an odd number of 16-byte units,
/// so that eight rows of a matrix load fall into different banks.
template <int kColumns>
struct Tile {
  static_assert(kColumns % 16 == 0);
  static constexpr int kPitch = kColumns + 8;
  static constexpr Index bytes(int rows) { return Index{rows} * kPitch * 2; }

  bf16* data;

  /// The A fragment of rows [row, row + 16), columns [column, column + 16).
  __device__ void load_a(unsigned (&a)[4], int row, int column) const {
    const int lane = threadIdx.x % kWarp;
    load_matrices(a, data + (row + lane % 16) * kPitch + column + lane / 16 * 8);
  }
  /// B fragments of the transpose: n = tile rows [row, row + 16), k = columns [column, column +
  /// 16). b[0], b[1] are those of the first eight n, b[2], b[3] of the others.
  __device__ void load_b_transposed(unsigned (&b)[4], int row, int column) const {
    const int lane = threadIdx.x % kWarp;
    load_matrices(b, data + (row + lane / 16 * 8 + lane % 8) * kPitch + column + lane / 8 % 2 * 8);
  }
  /// B fragments of the tile as it is: k = rows [row, row + 16), n = columns [column, column + 16).
  __device__ void load_b(unsigned (&b)[4], int row, int column) const {
    const int lane = threadIdx.x % kWarp;
    load_matrices_transposed(b, data + (row + lane % 16) * kPitch + column + lane / 16 * 8);
  }

  /// Starts copying rows [first, first + kRows) of a matrix with `rows` rows of `width` columns
  /// (a multiple of 8); what lies outside becomes zeros.
  template <int kRows, int kThreads>
  __device__ void fetch(const bf16* matrix, Index pitch, int first, int rows, int width) const {
    constexpr int kPieces = kColumns / 8;
#pragma unroll 2  // more costs registers that the accumulators need
    for (int begin = 0; begin < kRows * kPieces; begin += kThreads) {
      const int piece = begin + static_cast<int>(threadIdx.x);
      if (kRows * kPieces % kThreads != 0 && piece >= kRows * kPieces) break;
      const int row = piece / kPieces, column = piece % kPieces * 8;
      const bool valid = first + row < rows && column < width;
      const bf16* source = valid ? matrix + (first + row) * pitch + column : matrix;
      copy_async(data + row * kPitch + column, source, valid);
    }
  }
};

/// c[m][n] += a . tile^T over all columns: rows [a_row, a_row + 16 kRowTiles) of `a`, and
/// 8 kColumnTiles rows of `tile` from its start.
template <int kRowTiles, int kColumnTiles, int kDepth>
__device__ void multiply_transposed(float (&c)[kRowTiles][kColumnTiles][4], const Tile<kDepth>& a,
                                    int a_row, const Tile<kDepth>& tile) {
#pragma unroll 2
  for (int k = 0; k < kDepth; k += 16) {
    unsigned left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) a.load_a(left[m], a_row + m * 16, k);
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      unsigned right[4];
      tile.load_b_transposed(right, n * 8, k);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply(c[m][n], left[m], right[0], right[1]);
        multiply(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// c += p . tile, where p is 8 kDepthTiles columns wide, held as accumulators and rounded to bf16.
template <int kRowTiles, int kDepthTiles, int kColumns>
__device__ void multiply_accumulators(float (&c)[kRowTiles][kColumns / 8][4],
                                      const float (&p)[kRowTiles][kDepthTiles][4],
                                      const Tile<kColumns>& tile) {
#pragma unroll
  for (int k = 0; k < kDepthTiles; k += 2) {
    unsigned left[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      left[m][0] = pack_bf16(p[m][k][0], p[m][k][1]);
      left[m][1] = pack_bf16(p[m][k][2], p[m][k][3]);
      left[m][2] = pack_bf16(p[m][k + 1][0], p[m][k + 1][1]);
      left[m][3] = pack_bf16(p[m][k + 1][2], p[m][k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      unsigned right[4];
      tile.load_b(right, k * 8, n * 8);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply(c[m][n], left[m], right[0], right[1]);
        multiply(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Writes one row of accumulators (rows g for half 0, g + 8 for half 1) times `factor`, `width`
/// columns (even) of it. The four lanes of a quad hold the row.
template <int kColumns>
__device__ void store_row(bf16* row, const float (&c)[kColumns / 8][4], int half, float factor,
                          int width) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const float low = half == 0 ? c[n][0] : c[n][2], high = half == 0 ? c[n][1] : c[n][3];
    if (column < width)
      *reinterpret_cast<unsigned*>(row + column) = pack_bf16(low * factor, high * factor);
  }
}

/// Calls body(Constant<columns of the tiles>) for heads of `head_dim` columns, at most 128. The
/// columns beyond the head are zeros.
template <class Body>
void with_depth(Index head_dim, const Body& body) {
  if (head_dim <= 64)
    body(Constant<64>{});
  else if (head_dim <= 96)
    body(Constant<96>{});
  else
    body(Constant<128>{});
}

}  // namespace megatrain::ops::cuda
