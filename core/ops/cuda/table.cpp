#include "core/base/error.h"
#include "core/ops/cuda/cuda_ops.h"
#include "core/ops/cuda/kernels.h"

namespace megatrain::ops {

namespace cuda {

namespace {

CudaOpState& cuda_state(OpState& state) { return static_cast<CudaOpState&>(state); }

/// The stream's handle, with the GPU made current for what follows.
StreamHandle enter(const CudaOpState& state, Stream& stream) {
  auto* own = dynamic_cast<CudaStream*>(&stream);
  if (own == nullptr || &own->device() != &state.device)
    throw LogicError("internal error: a CUDA op was issued on a stream of another device");
  state.device.make_current();
  return own->handle();
}

/// The op function of a kernel that needs a stream only.
template <class Op, void (*Launch)(StreamHandle, const Op&)>
void launch(OpState& state, Stream& stream, const Op& op) {
  Launch(enter(cuda_state(state), stream), op);
}

void gemm(OpState& state, Stream& stream, const Gemm& op) {
  const StreamHandle handle = enter(cuda_state(state), stream);
  cuda_state(state).gemms.run(handle, op);
}

void attention_forward(OpState& state, Stream& stream, const AttentionForward& op) {
  const StreamHandle handle = enter(cuda_state(state), stream);
  if (op.backend == AttentionBackend::own)
    attention_own_forward(handle, op);
  else
    cuda_state(state).cudnn->forward(handle, op);
}

void attention_backward(OpState& state, Stream& stream, const AttentionBackward& op) {
  const StreamHandle handle = enter(cuda_state(state), stream);
  if (op.backend == AttentionBackend::own)
    attention_own_backward(handle, op);
  else
    cuda_state(state).cudnn->backward(handle, op);
}

std::string attention_refusal(OpState& state, const AttentionShape& shape,
                              AttentionBackend backend) {
  CudaOpState& own = cuda_state(state);
  own.device.make_current();
  if (backend == AttentionBackend::own)
    return attention_own_refusal(shape, own.device.properties().shared_memory_per_block);
  return own.cudnn->refusal(shape, backend);
}

CudaDevice& cuda_device(Device& device) {
  auto* own = dynamic_cast<CudaDevice*>(&device);
  if (own == nullptr)
    throw LogicError("internal error: CUDA kernels were asked for on another device");
  own->make_current();
  return *own;
}

}  // namespace

CudaOpState::CudaOpState(CudaDevice& gpu, DType compute)
    : device(gpu), cudnn(make_cudnn_attention(compute)) {}

}  // namespace cuda

Ops make_cuda_ops(Device& device, DType compute) {
  using namespace cuda;  // the launchers have the ops' names
  const OpTable table{cuda::gemm,
                      launch<BiasGradient, bias_gradient>,
                      launch<NormForward, norm_forward>,
                      launch<NormBackward, norm_backward>,
                      launch<Rope, rope>,
                      cuda::attention_forward,
                      cuda::attention_backward,
                      launch<SwigluForward, swiglu_forward>,
                      launch<SwigluBackward, swiglu_backward>,
                      launch<GeluForward, gelu_forward>,
                      launch<GeluBackward, gelu_backward>,
                      launch<EmbeddingForward, embedding_forward>,
                      launch<EmbeddingBackward, embedding_backward>,
                      launch<PositionBackward, position_backward>,
                      launch<CrossEntropy, cross_entropy>,
                      launch<LogitStatistics, logit_statistics>,
                      launch<CrossEntropyOfPart, cross_entropy_of_part>,
                      launch<ReduceGradient, reduce_gradient>,
                      launch<AdamW, adamw>};
  return {table, attention_refusal, std::make_unique<CudaOpState>(cuda_device(device), compute)};
}

}  // namespace megatrain::ops
