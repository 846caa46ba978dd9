#pragma once
/// @file
/// Attention by cuDNN, behind an interface that needs none of its headers.

#include <memory>
#include <string>

#include "core/ops/attention.h"

struct CUstream_st;

namespace megatrain::ops::cuda {

/// The GPU that was current when it was made must be current at every call.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  /// Why cuDNN cannot serve `shape` by `backend` within the workspaces of ops/attention.h; empty
  /// when it can. Builds the kernels, so the first question about a shape takes long. Tensors are
  /// taken to be packed as [q heads | k heads | v heads] a token, outputs as [q heads].
  [[nodiscard]] virtual std::string refusal(const AttentionShape& shape,
                                            AttentionBackend backend) = 0;
  /// @throws Error when cuDNN refuses, LogicError for a workspace that is too small
  virtual void forward(CUstream_st* stream, const AttentionForward& op) = 0;
  /// Runs all heads at once when that fits the workspace cap of the shape, else KV group by KV
  /// group, else also batch item by batch item.
  virtual void backward(CUstream_st* stream, const AttentionBackward& op) = 0;
};

/// Opens the library at once for bf16, at the first use otherwise. In a build without cuDNN, or
/// where the library does not open, everything is refused with the reason.
std::unique_ptr<CudnnAttention> make_cudnn_attention(DType compute);

}  // namespace megatrain::ops::cuda
