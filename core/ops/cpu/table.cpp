#include "core/base/error.h"
#include "core/ops/cpu/kernels.h"

namespace megatrain::ops::cpu {

namespace {

std::string attention_refusal(OpState& /*state*/, const AttentionShape& /*shape*/,
                              AttentionBackend backend) {
  if (backend == AttentionBackend::own) return {};
  return "cuDNN attention needs a CUDA device; the CPU device has its own kernel only";
}

}  // namespace

Ops make_cpu_ops(const DeviceInfo& processor, DType compute) {
  if (const std::string refusal = compute_refusal(processor, compute); !refusal.empty())
    throw UserError(refusal);
  const OpTable table{gemm,
                      bias_gradient,
                      norm_forward,
                      norm_backward,
                      rope,
                      attention_forward,
                      attention_backward,
                      swiglu_forward,
                      swiglu_backward,
                      gelu_forward,
                      gelu_backward,
                      embedding_forward,
                      embedding_backward,
                      position_backward,
                      cross_entropy,
                      logit_statistics,
                      cross_entropy_of_part,
                      reduce_gradient,
                      adamw};
  return {table, attention_refusal, std::make_unique<CpuOpState>()};
}

}  // namespace megatrain::ops::cpu
