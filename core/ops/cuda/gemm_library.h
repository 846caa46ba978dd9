#pragma once
/// @file
/// Matrix products by cuBLASLt. An algorithm is chosen once per shape by the library's heuristics,
/// which depend on shape, alignment, GPU and version, never on timing.

#include <memory>

#include "core/ops/gemm.h"

struct CUstream_st;

namespace megatrain::ops::cuda {

class GemmLibrary {
 public:
  GemmLibrary();
  ~GemmLibrary();
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;

  /// Enqueues the product. fp32 operands give an fp32 result in true fp32 (no TF32); bf16 operands
  /// give bf16 or fp32. Split sums are allowed in fp32 and in a fixed order only.
  /// @throws LogicError for other types, or a workspace below what the algorithm takes (at most
  /// kGemmWorkspace)
  void run(CUstream_st* stream, const Gemm& op);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain::ops::cuda
