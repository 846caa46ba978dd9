#include "core/ops/cuda/attention_kernels.cuh"
#include "core/ops/cuda/attention_simple.cuh"

namespace megatrain::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr Index kLargestHead = 256, kLargestTensorHead = 128;
/// The most that a tensor-core or fp32 kernel asks for; every GPU of compute capability 8.0 or
/// higher has it.
constexpr Index kSharedMemory = 99 * 1024;

/// delta = sum of o * d_o over a head, a warp for each head of each token.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) output_products(AttentionBackward op, float* delta) {
  const AttentionShape& shape = op.shape;
  const Index lane = threadIdx.x % kWarp;
  const Index total = shape.batch * shape.sequence * shape.query_heads;
  constexpr int kWarps = kThreads / kWarp;
  for (Index at = Index{blockIdx.x} * kWarps + threadIdx.x / kWarp; at < total;
       at += Index{gridDim.x} * kWarps) {
    const Index token = at / shape.query_heads, head = at % shape.query_heads;
    const T* o = static_cast<const T*>(op.o) + token * op.o_stride + head * shape.head_dim;
    const T* d_o = static_cast<const T*>(op.d_o) + token * op.d_o_stride + head * shape.head_dim;
    float sum = 0;
    for (Index column = lane * kWidth; column < shape.head_dim; column += kWarp * kWidth) {
      float values[kWidth], gradients[kWidth];
      load(o + column, values);
      load(d_o + column, gradients);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum = fmaf(values[i], gradients[i], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0)
      delta[head_values(shape, token / shape.sequence, head) + token % shape.sequence] = sum;
  }
}

bool is_empty(const AttentionShape& shape) {
  return shape.batch == 0 || shape.sequence == 0 || shape.query_heads == 0;
}

/// Tensor cores need bf16 and heads whose rows are whole 16-byte pieces.
bool fits_tensor_cores(const AttentionShape& shape, std::initializer_list<const void*> pointers,
                       std::initializer_list<Index> strides) {
  return shape.type == DType::bf16 && shape.head_dim <= kLargestTensorHead &&
         shape.head_dim % kWide<bf16> == 0 && allows_wide<bf16>(pointers, strides);
}

}  // namespace

std::string attention_own_refusal(const AttentionShape& shape, Index shared_memory_per_block) {
  if (shape.head_dim < 1 || shape.head_dim > kLargestHead)
    return "heads of size " + std::to_string(shape.head_dim) + " (the own kernels serve 1 to " +
           std::to_string(kLargestHead) + ")";
  if (shape.kv_heads < 1 || shape.query_heads % shape.kv_heads != 0)
    return std::to_string(shape.query_heads) + " query heads cannot share " +
           std::to_string(shape.kv_heads) + " key/value heads evenly";
  if (shape.sequence >= Index{1} << 30)
    return "a sequence of " + std::to_string(shape.sequence) + " tokens (below 2^30 is served)";
  if (shared_memory_per_block < kSharedMemory)
    return "the GPU has " + std::to_string(shared_memory_per_block) +
           " bytes of shared memory per block, " + std::to_string(kSharedMemory) + " are needed";
  return {};
}

void attention_own_forward(StreamHandle stream, const AttentionForward& op) {
  if (is_empty(op.shape)) return;
  if (fits_tensor_cores(op.shape, {op.q, op.k, op.v, op.o},
                        {op.q_stride, op.k_stride, op.v_stride, op.o_stride}))
    tensor_forward::run(stream, op);
  else
    simple::forward(stream, op);
}

void attention_own_backward(StreamHandle stream, const AttentionBackward& op) {
  if (is_empty(op.shape)) return;
  const AttentionShape& shape = op.shape;
  const Index heads = shape.batch * shape.sequence * shape.query_heads;
  require(op.workspace.bytes >= heads * 4, "the workspace of an attention backward is too small");
  auto* delta = static_cast<float*>(op.workspace.data);
  with_type_and_width(
      shape.type, {op.o, op.d_o}, {shape.head_dim, op.o_stride, op.d_o_stride},
      [&](auto element, auto width) {
        launch("attention delta", output_products<decltype(element), decltype(width)::value>,
               grid_for(ceil_div(heads, kThreads / kWarp)), kThreads, 0, stream, op, delta);
      });
  if (fits_tensor_cores(shape, {op.q, op.k, op.v, op.d_o, op.dq, op.dk, op.dv},
                        {op.q_stride, op.k_stride, op.v_stride, op.d_o_stride, op.dq_stride,
                         op.dk_stride, op.dv_stride}))
    tensor_backward::run(stream, op, delta);
  else
    simple::backward(stream, op, delta);
}

}  // namespace megatrain::ops::cuda
