#pragma once
/// @file
/// The op functions of the CPU device, as its OpTable lists them. Each checks its arguments on the
/// calling thread and enqueues one piece of work on the stream; the work announces the ranges that
/// it reads and writes (cpu_device.h) and spreads fixed pieces over the stream's pool.

#include <memory>

#include "core/device/cpu/cpu_device.h"
#include "core/ops/ops.h"

namespace megatrain::ops::cpu {

class GemmCache;

/// What the CPU's op functions keep between calls.
struct CpuOpState : OpState {
  CpuOpState();
  ~CpuOpState() override;
  std::unique_ptr<GemmCache> gemms;  ///< matrix product primitives by shape
};

/// Why this processor cannot compute in `compute`; empty when it can.
std::string compute_refusal(const DeviceInfo& processor, DType compute);

void gemm(OpState& state, Stream& stream, const Gemm& op);
void bias_gradient(OpState& state, Stream& stream, const BiasGradient& op);
void norm_forward(OpState& state, Stream& stream, const NormForward& op);
void norm_backward(OpState& state, Stream& stream, const NormBackward& op);
void rope(OpState& state, Stream& stream, const Rope& op);
void attention_forward(OpState& state, Stream& stream, const AttentionForward& op);
void attention_backward(OpState& state, Stream& stream, const AttentionBackward& op);
void swiglu_forward(OpState& state, Stream& stream, const SwigluForward& op);
void swiglu_backward(OpState& state, Stream& stream, const SwigluBackward& op);
void gelu_forward(OpState& state, Stream& stream, const GeluForward& op);
void gelu_backward(OpState& state, Stream& stream, const GeluBackward& op);
void embedding_forward(OpState& state, Stream& stream, const EmbeddingForward& op);
void embedding_backward(OpState& state, Stream& stream, const EmbeddingBackward& op);
void position_backward(OpState& state, Stream& stream, const PositionBackward& op);
void cross_entropy(OpState& state, Stream& stream, const CrossEntropy& op);
void logit_statistics(OpState& state, Stream& stream, const LogitStatistics& op);
void cross_entropy_of_part(OpState& state, Stream& stream, const CrossEntropyOfPart& op);
void reduce_gradient(OpState& state, Stream& stream, const ReduceGradient& op);
void adamw(OpState& state, Stream& stream, const AdamW& op);

/// The CPU's kernels as a value. @throws UserError when the processor lacks what `compute` needs
Ops make_cpu_ops(const DeviceInfo& processor, DType compute);

}  // namespace megatrain::ops::cpu
