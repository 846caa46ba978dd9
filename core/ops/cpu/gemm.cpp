#include "core/ops/gemm.h"

#include <array>
#include <cstring>

#include "core/base/bfloat16.h"
#include "core/base/error.h"
#include "core/ops/cpu/gemm_cache.h"
#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"

namespace megatrain::ops::cpu {

namespace {

/// How D is cut into tiles. A function of the shape alone: bits must not depend on the number of
/// threads.
struct Tiling {
  Pieces rows, columns;
  [[nodiscard]] Index number() const { return rows.number() * columns.number(); }
};

Tiling tiling(Index m, Index n) {
  // Large tiles reuse what the library packs; at least this many let several cores work.
  constexpr Index kTiles = 8;
  constexpr Index kSmallest = 128;
  Tiling tiles{.rows = {m, 256}, .columns = {n, 512}};
  while (tiles.number() < kTiles && tiles.columns.size > kSmallest) {
    if (tiles.columns.size > tiles.rows.size || tiles.rows.size == kSmallest)
      tiles.columns.size /= 2;
    else
      tiles.rows.size /= 2;
  }
  return tiles;
}

const std::byte* at(const void* base, Index row, Index column, Index pitch, DType type) {
  return static_cast<const std::byte*>(base) + (row * pitch + column) * size_of(type);
}
std::byte* at(void* base, Index row, Index column, Index pitch, DType type) {
  return static_cast<std::byte*>(base) + (row * pitch + column) * size_of(type);
}

/// A product with its primitives: inner tiles, and those cut by the last row and column of D.
struct Product {
  Gemm op;
  Tiling tiles;
  std::array<std::array<const TileProduct*, 2>, 2> primitives{};  ///< [last row][last column]
};

void check(const Gemm& op) {
  require(op.m >= 0 && op.n >= 0 && op.k >= 0, "a matrix product of negative size");
  require(op.in == DType::bf16 || op.out == DType::f32,
          "a matrix product of fp32 operands has an fp32 result");
  require(op.lda >= (op.transpose_a ? op.m : op.k) && op.ldb >= (op.transpose_b ? op.k : op.n) &&
              op.ldd >= op.n && (op.c == nullptr || op.ldc >= op.n),
          "a row pitch of a matrix product is shorter than its row");
  require(op.c != op.d || op.ldc == op.ldd, "a product in place has two pitches for one matrix");
}

void announce(const Gemm& op) {
  const Index in = size_of(op.in);
  const Index out = size_of(op.out);
  announce_read(op.a, op.transpose_a ? op.k : op.m, (op.transpose_a ? op.m : op.k) * in,
                op.lda * in);
  announce_read(op.b, op.transpose_b ? op.n : op.k, (op.transpose_b ? op.k : op.n) * in,
                op.ldb * in);
  if (op.bias != nullptr) announce_read(op.bias, op.n * in);
  if (op.c != nullptr) announce_read(op.c, op.m, op.n * out, op.ldc * out);
  announce_write(op.d, op.m, op.n * out, op.ldd * out);
}

/// A tile of D before the product is added to it: C.
void copy_tile(const Gemm& op, Index row, Index end_row, Index column, Index end_column) {
  const Index bytes = (end_column - column) * size_of(op.out);
  for (; row < end_row; ++row)
    std::memcpy(at(op.d, row, column, op.ldd, op.out), at(op.c, row, column, op.ldc, op.out),
                static_cast<std::size_t>(bytes));
}

float load(const void* base, Index index, DType type) {
  return type == DType::f32 ? static_cast<const float*>(base)[index]
                            : to_float(static_cast<const bfloat16*>(base)[index]);
}

/// D = C + bias, the product over an empty k.
void run_without_product(const Gemm& op) {
  for (Index i = 0; i < op.m; ++i)
    for (Index j = 0; j < op.n; ++j) {
      float value = op.c != nullptr ? load(op.c, i * op.ldc + j, op.out) : 0.0F;
      if (op.bias != nullptr) value += load(op.bias, j, op.in);
      if (op.out == DType::f32)
        static_cast<float*>(op.d)[i * op.ldd + j] = value;
      else
        static_cast<bfloat16*>(op.d)[i * op.ldd + j] = to_bfloat16(value);
    }
}

void run_tile(const Product& product, Index piece) {
  const Gemm& op = product.op;
  const Index tile_columns = product.tiles.columns.number();
  const auto [row, end_row] = product.tiles.rows.at(piece / tile_columns);
  const auto [column, end_column] = product.tiles.columns.at(piece % tile_columns);
  if (op.c != nullptr && op.c != op.d) copy_tile(op, row, end_row, column, end_column);
  const void* a =
      op.transpose_a ? at(op.a, 0, row, op.lda, op.in) : at(op.a, row, 0, op.lda, op.in);
  const void* b =
      op.transpose_b ? at(op.b, column, 0, op.ldb, op.in) : at(op.b, 0, column, op.ldb, op.in);
  const void* bias = op.bias != nullptr ? at(op.bias, 0, column, 0, op.in) : nullptr;
  product.primitives[end_row == op.m][end_column == op.n]->run(
      a, b, bias, at(op.d, row, column, op.ldd, op.out));
}

/// Looks up the primitives that the tiles of `op` need.
Product prepare(GemmCache& cache, const Gemm& op) {
  Product product{.op = op, .tiles = tiling(op.m, op.n)};
  const auto length = [](const Pieces& pieces, bool last) {
    const auto [begin, end] = pieces.at(last ? pieces.number() - 1 : 0);
    return end - begin;
  };
  for (const bool last_row : {false, true})
    for (const bool last_column : {false, true})
      product.primitives[last_row][last_column] =
          &cache.find({.m = length(product.tiles.rows, last_row),
                       .n = length(product.tiles.columns, last_column),
                       .k = op.k,
                       .lda = op.lda,
                       .ldb = op.ldb,
                       .ldd = op.ldd,
                       .transpose_a = op.transpose_a,
                       .transpose_b = op.transpose_b,
                       .in = op.in,
                       .out = op.out,
                       .accumulate = op.c != nullptr,
                       .bias = op.bias != nullptr});
  return product;
}

}  // namespace

void gemm(OpState& state, Stream& stream, const Gemm& op) {
  check(op);
  if (op.m == 0 || op.n == 0) return;
  CpuStream& own = cpu_stream(stream);
  if (op.k == 0) {
    own.enqueue([op] {
      announce(op);
      run_without_product(op);
    });
    return;
  }
  own.enqueue([&own, product = prepare(*static_cast<CpuOpState&>(state).gemms, op)] {
    announce(product.op);
    own.pool().for_each(product.tiles.number(), [&](Index piece) { run_tile(product, piece); });
  });
}

}  // namespace megatrain::ops::cpu
