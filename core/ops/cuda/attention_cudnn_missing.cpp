// cuDNN attention in a build without cuDNN or its frontend: refuses by name.

#include "core/base/error.h"
#include "core/ops/cuda/attention_cudnn.h"

namespace megatrain::ops::cuda {

namespace {

constexpr const char* kReason =
    "this build has no cuDNN attention: it needs cuDNN 9 and the headers of "
    "nvidia-cudnn-frontend 1.18 when it is configured (MEGATRAIN_CUDNN_FRONTEND_DIR)";

class MissingCudnn final : public CudnnAttention {
 public:
  std::string refusal(const AttentionShape& /*shape*/, AttentionBackend /*backend*/) override {
    return kReason;
  }
  void forward(CUstream_st* /*stream*/, const AttentionForward& /*op*/) override {
    throw Error(kReason);
  }
  void backward(CUstream_st* /*stream*/, const AttentionBackward& /*op*/) override {
    throw Error(kReason);
  }
};

}  // namespace

std::unique_ptr<CudnnAttention> make_cudnn_attention(DType /*compute*/) {
  return std::make_unique<MissingCudnn>();
}

}  // namespace megatrain::ops::cuda
