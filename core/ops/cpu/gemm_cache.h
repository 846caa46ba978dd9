#pragma once
/// @file
/// Matrix product primitives of oneDNN, made once per shape.

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/ops/gemm.h"

namespace megatrain::ops::cpu {

/// One library call: a tile of D with the whole of k. Pitches in elements.
struct TileShape {
  Index m = 0, n = 0, k = 0;
  Index lda = 0, ldb = 0, ldd = 0;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::f32, out = DType::f32;
  bool accumulate = false, bias = false;
  auto operator<=>(const TileShape&) const = default;
};

/// A tile's primitive. Safe to run from several threads at once.
class TileProduct {
 public:
  explicit TileProduct(const TileShape& shape);
  ~TileProduct();
  TileProduct(const TileProduct&) = delete;
  TileProduct& operator=(const TileProduct&) = delete;
  /// d (+)= op(a) . op(b) (+ bias), on the calling thread alone.
  void run(const void* a, const void* b, const void* bias, void* d) const;

 private:
  struct Primitive;
  std::unique_ptr<const Primitive> primitive_;
};

/// Primitives by shape. A plan has few shapes, so nothing is ever dropped.
class GemmCache {
 public:
  /// The primitive of `shape`, made at its first use. Called by issuing threads only: it must not
  /// create an order between streams. @throws Error when oneDNN has no kernel for it
  const TileProduct& find(const TileShape& shape);

 private:
  std::mutex mutex_;
  std::map<TileShape, std::unique_ptr<const TileProduct>> products_;
};

}  // namespace megatrain::ops::cpu
