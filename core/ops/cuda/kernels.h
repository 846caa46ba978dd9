#pragma once
/// @file
/// Launchers of our own CUDA kernels, one an op. Each enqueues its kernels on the stream, checks
/// the launch (check_launch) and returns; empty shapes launch nothing. Results do not depend on the
/// GPU's size. The GPU must be current on the calling thread.

#include "core/ops/ops.h"

struct CUstream_st;

namespace megatrain::ops::cuda {

using StreamHandle = CUstream_st*;  ///< cudaStream_t

void bias_gradient(StreamHandle stream, const BiasGradient& op);            // bias_gradient.cu
void norm_forward(StreamHandle stream, const NormForward& op);              // norm.cu
void norm_backward(StreamHandle stream, const NormBackward& op);            // norm.cu
void rope(StreamHandle stream, const Rope& op);                             // rope.cu
void swiglu_forward(StreamHandle stream, const SwigluForward& op);          // activation.cu
void swiglu_backward(StreamHandle stream, const SwigluBackward& op);        // activation.cu
void gelu_forward(StreamHandle stream, const GeluForward& op);              // activation.cu
void gelu_backward(StreamHandle stream, const GeluBackward& op);            // activation.cu
void embedding_forward(StreamHandle stream, const EmbeddingForward& op);    // embedding.cu
void embedding_backward(StreamHandle stream, const EmbeddingBackward& op);  // embedding.cu
void position_backward(StreamHandle stream, const PositionBackward& op);    // embedding.cu
void cross_entropy(StreamHandle stream, const CrossEntropy& op);            // cross_entropy.cu
void logit_statistics(StreamHandle stream, const LogitStatistics& op);      // cross_entropy.cu
void cross_entropy_of_part(StreamHandle stream,
                           const CrossEntropyOfPart& op);             // cross_entropy.cu
void reduce_gradient(StreamHandle stream, const ReduceGradient& op);  // reduce_gradient.cu
void adamw(StreamHandle stream, const AdamW& op);                     // adamw.cu

/// Our own attention: any head size that attention_own_refusal accepts, deterministic, linear
/// memory. `op.backend` is not looked at.
void attention_own_forward(StreamHandle stream, const AttentionForward& op);    // attention.cu
void attention_own_backward(StreamHandle stream, const AttentionBackward& op);  // attention.cu
/// Why the own kernels refuse a shape on a GPU with this much shared memory per block (opt-in);
/// empty when they serve it.
std::string attention_own_refusal(const AttentionShape& shape, Index shared_memory_per_block);

}  // namespace megatrain::ops::cuda
