// The one file that includes cuDNN's header-only frontend.

#include "core/ops/cuda/attention_cudnn.h"

#include <cudnn.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <array>
#include <compare>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace megatrain::ops::cuda {

namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Names of a graph's tensors at execution.
using Uid = std::int64_t;
constexpr Uid kQ = 1;
constexpr Uid kK = 2;
constexpr Uid kV = 3;
constexpr Uid kO = 4;
constexpr Uid kLse = 5;
constexpr Uid kDo = 6;
constexpr Uid kDq = 7;
constexpr Uid kDk = 8;
constexpr Uid kDv = 9;

/// Token strides of the tensors, in elements; those of a forward pass end with o.
struct Strides {
  Index q = 0, k = 0, v = 0, o = 0, d_o = 0, dq = 0, dk = 0, dv = 0;
  auto operator<=>(const Strides&) const = default;
};

/// All that a graph is built from. Heads and batch are those of one call, which may be a piece of
/// the op; `lse_heads` are the op's.
struct GraphKey {
  bool backward = false, deterministic = false;
  Index batch = 0, query_heads = 0, kv_heads = 0, lse_heads = 0;
  Index sequence = 0, head_dim = 0, window = 0;
  float scale = 0;
  Strides strides;
  auto operator<=>(const GraphKey&) const = default;
};

struct BuiltGraph {
  std::unique_ptr<fe::graph::Graph> graph;
  Index workspace_bytes = 0;
  std::string refusal;  ///< why cuDNN does not build it; empty when it did
};

/// How a backward pass is cut: every call covers so many batch items and KV groups.
struct BackwardPlan {
  const BuiltGraph* built = nullptr;  ///< nullptr: refused
  Index batch = 0, kv_heads = 0;
  std::string refusal;
};

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// A window that reaches the first token from the last is none.
Index effective_window(const AttentionShape& shape) {
  return shape.window >= shape.sequence ? 0 : shape.window;
}

/// What is known beforehand: types, sizes, and versions with known faults.
std::string static_refusal(const AttentionShape& shape) {
  if (shape.type != DType::bf16)
    return fmt::format("cuDNN attention computes in bf16, not {}", name(shape.type));
  if (shape.kv_heads <= 0 || shape.query_heads % shape.kv_heads != 0)
    return fmt::format("cuDNN attention: {} query heads do not share {} KV heads evenly",
                       shape.query_heads, shape.kv_heads);
  if (shape.head_dim % 8 != 0 || shape.head_dim > 256 || shape.head_dim <= 0)
    return fmt::format("cuDNN attention takes head sizes that are multiples of 8 up to 256, not {}",
                       shape.head_dim);
  const std::size_t version = cudnnGetVersion();
  if (version < 90600)
    return fmt::format("cuDNN {} is older than 9.6, the first with all that is needed",
                       version_text(version));
  if (version == 91000 || version == 91001)
    return fmt::format("cuDNN {} has a known fault in attention; use 9.10.2 or newer",
                       version_text(version));
  if (version == 91400 && effective_window(shape) > 0)
    return fmt::format(
        "cuDNN {} has a known fault in sliding-window attention; use another version",
        version_text(version));
  return {};
}

std::string unsupported(fe::error_object error) {
  return fmt::format("cuDNN {} refuses: {}", version_text(cudnnGetVersion()), error.get_message());
}

/// A tensor of [batch, heads, sequence, head size] inside rows of `stride` elements a token.
fe::graph::Tensor_attributes head_tensor(const GraphKey& key, Uid uid, Index heads, Index stride) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_dim({key.batch, heads, key.sequence, key.head_dim})
      .set_stride({key.sequence * stride, key.head_dim, stride, 1});
}

fe::graph::Tensor_attributes lse_tensor(const GraphKey& key) {
  return fe::graph::Tensor_attributes()
      .set_uid(kLse)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({key.batch, key.query_heads, key.sequence, 1})
      .set_stride({key.lse_heads * key.sequence, key.sequence, 1, 1});
}

void make_output(const Tensor& tensor, const fe::graph::Tensor_attributes& like) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride());
}

/// The mask of ops/attention.h. cuDNN keeps j > i - left bound too, so its bound counts the query
/// itself, as the window does.
template <class Attributes>
Attributes with_mask(Attributes attributes, const GraphKey& key) {
  attributes.set_attn_scale(key.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (key.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(key.window));
  return attributes;
}

void add_forward(fe::graph::Graph& graph, const GraphKey& key) {
  const Tensor q = graph.tensor(head_tensor(key, kQ, key.query_heads, key.strides.q));
  const Tensor k = graph.tensor(head_tensor(key, kK, key.kv_heads, key.strides.k));
  const Tensor v = graph.tensor(head_tensor(key, kV, key.kv_heads, key.strides.v));
  const auto attributes =
      with_mask(fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true), key);
  const auto [o, lse] = graph.sdpa(q, k, v, attributes);
  make_output(o, head_tensor(key, kO, key.query_heads, key.strides.o));
  make_output(lse, lse_tensor(key));
  lse->set_data_type(fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const GraphKey& key) {
  const Tensor q = graph.tensor(head_tensor(key, kQ, key.query_heads, key.strides.q));
  const Tensor k = graph.tensor(head_tensor(key, kK, key.kv_heads, key.strides.k));
  const Tensor v = graph.tensor(head_tensor(key, kV, key.kv_heads, key.strides.v));
  const Tensor o = graph.tensor(head_tensor(key, kO, key.query_heads, key.strides.o));
  const Tensor d_o = graph.tensor(head_tensor(key, kDo, key.query_heads, key.strides.d_o));
  const Tensor lse = graph.tensor(lse_tensor(key));
  const auto attributes = with_mask(fe::graph::SDPA_backward_attributes()
                                        .set_name("attention_backward")
                                        .set_deterministic_algorithm(key.deterministic),
                                    key);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, d_o, lse, attributes);
  make_output(dq, head_tensor(key, kDq, key.query_heads, key.strides.dq));
  make_output(dk, head_tensor(key, kDk, key.kv_heads, key.strides.dk));
  make_output(dv, head_tensor(key, kDv, key.kv_heads, key.strides.dv));
}

BuiltGraph build(cudnnHandle_t handle, const GraphKey& key) {
  BuiltGraph built;
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  try {
    if (key.backward)
      add_backward(*graph, key);
    else
      add_forward(*graph, key);
    std::int64_t workspace_bytes = 0;
    fe::error_object status = graph->validate();
    if (status.is_good()) status = graph->build_operation_graph(handle);
    if (status.is_good()) status = graph->create_execution_plans({fe::HeurMode_t::A});
    if (status.is_good()) status = graph->check_support();
    if (status.is_good()) status = graph->build_plans();
    if (status.is_good()) status = graph->get_workspace_size(workspace_bytes);
    if (status.is_bad()) {
      built.refusal = unsupported(status);
      return built;
    }
    built.workspace_bytes = workspace_bytes;
  } catch (const std::exception& error) {
    built.refusal =
        fmt::format("cuDNN {} refuses: {}", version_text(cudnnGetVersion()), error.what());
    return built;
  }
  built.graph = std::move(graph);
  return built;
}

GraphKey key_of(const AttentionShape& shape, const Strides& strides) {
  return {.backward = false,
          .deterministic = false,
          .batch = shape.batch,
          .query_heads = shape.query_heads,
          .kv_heads = shape.kv_heads,
          .lse_heads = shape.query_heads,
          .sequence = shape.sequence,
          .head_dim = shape.head_dim,
          .window = effective_window(shape),
          .scale = shape.scale,
          .strides = strides};
}

/// Pointer to element `offset` of a bf16 tensor, as the library takes it.
void* at(const void* base, Index offset) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(base));
  return bytes + offset * size_of(DType::bf16);
}

void* at(const float* base, Index offset) { return const_cast<float*>(base) + offset; }

class Cudnn final : public CudnnAttention {
 public:
  explicit Cudnn(DType compute) {
    if (compute == DType::bf16) open();
  }
  ~Cudnn() override {
    graphs_.clear();
    if (handle_ != nullptr) static_cast<void>(cudnnDestroy(handle_));
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  std::string refusal(const AttentionShape& shape, AttentionBackend backend) override {
    if (std::string reason = static_refusal(shape); !reason.empty()) return reason;
    if (!open()) return open_refusal_;
    const Index heads = shape.query_heads * shape.head_dim;
    const Index packed = heads + 2 * shape.kv_heads * shape.head_dim;
    const BuiltGraph& forward =
        graph(key_of(shape, {.q = packed, .k = packed, .v = packed, .o = heads}));
    if (!forward.refusal.empty()) return forward.refusal;
    if (const Index cap = attention_forward_workspace(shape, backend);
        forward.workspace_bytes > cap)
      return fmt::format("cuDNN's forward attention wants {} of workspace, the plan gives {}",
                         format_bytes(forward.workspace_bytes), format_bytes(cap));
    return backward_plan(shape, backend,
                         {.q = packed,
                          .k = packed,
                          .v = packed,
                          .o = heads,
                          .d_o = heads,
                          .dq = packed,
                          .dk = packed,
                          .dv = packed})
        .refusal;
  }

  void forward(CUstream_st* stream, const AttentionForward& op) override {
    require_usable(op.shape);
    const GraphKey key =
        key_of(op.shape, {.q = op.q_stride, .k = op.k_stride, .v = op.v_stride, .o = op.o_stride});
    const BuiltGraph& built = graph(key);
    if (!built.refusal.empty()) throw Error(built.refusal);
    std::unordered_map<std::int64_t, void*> tensors{{kQ, at(op.q, 0)},
                                                    {kK, at(op.k, 0)},
                                                    {kV, at(op.v, 0)},
                                                    {kO, at(op.o, 0)},
                                                    {kLse, at(op.lse, 0)}};
    execute(stream, built, tensors, op.workspace);
  }

  void backward(CUstream_st* stream, const AttentionBackward& op) override {
    require_usable(op.shape);
    const Strides strides{.q = op.q_stride,
                          .k = op.k_stride,
                          .v = op.v_stride,
                          .o = op.o_stride,
                          .d_o = op.d_o_stride,
                          .dq = op.dq_stride,
                          .dk = op.dk_stride,
                          .dv = op.dv_stride};
    const BackwardPlan& plan = backward_plan(op.shape, op.backend, strides);
    if (plan.built == nullptr) throw Error(plan.refusal);
    const Index group = op.shape.query_heads / op.shape.kv_heads;
    for (Index batch = 0; batch < op.shape.batch; batch += plan.batch) {
      const Index token = batch * op.shape.sequence;
      for (Index kv_head = 0; kv_head < op.shape.kv_heads; kv_head += plan.kv_heads) {
        const Index query_head = kv_head * group;
        const Index query = query_head * op.shape.head_dim;
        const Index kv = kv_head * op.shape.head_dim;
        const Index row = token * op.shape.query_heads + query_head * op.shape.sequence;
        std::unordered_map<std::int64_t, void*> tensors{
            {kQ, at(op.q, token * op.q_stride + query)},
            {kK, at(op.k, token * op.k_stride + kv)},
            {kV, at(op.v, token * op.v_stride + kv)},
            {kO, at(op.o, token * op.o_stride + query)},
            {kDo, at(op.d_o, token * op.d_o_stride + query)},
            {kDq, at(op.dq, token * op.dq_stride + query)},
            {kDk, at(op.dk, token * op.dk_stride + kv)},
            {kDv, at(op.dv, token * op.dv_stride + kv)},
            {kLse, at(op.lse, row)}};
        execute(stream, *plan.built, tensors, op.workspace);
      }
    }
  }

 private:
  bool open() {
    if (handle_ != nullptr) return true;
    if (!open_refusal_.empty()) return false;
    if (const cudnnStatus_t status = cudnnCreate(&handle_); status != CUDNN_STATUS_SUCCESS) {
      handle_ = nullptr;
      open_refusal_ = fmt::format("cuDNN does not open: {}", cudnnGetErrorString(status));
    }
    return handle_ != nullptr;
  }

  void require_usable(const AttentionShape& shape) {
    if (const std::string reason = static_refusal(shape); !reason.empty()) throw Error(reason);
    if (!open()) throw Error(open_refusal_);
  }

  const BuiltGraph& graph(const GraphKey& key) {
    auto found = graphs_.find(key);
    if (found == graphs_.end()) found = graphs_.emplace(key, build(handle_, key)).first;
    return found->second;
  }

  /// The largest piece that the shape's workspace cap holds. It depends on the shape and the
  /// library alone, so that two runs of one plan cut alike.
  const BackwardPlan& backward_plan(const AttentionShape& shape, AttentionBackend backend,
                                    const Strides& strides) {
    GraphKey key = key_of(shape, strides);
    key.backward = true;
    key.deterministic = backend == AttentionBackend::cudnn_deterministic;
    auto [entry, added] = backward_plans_.try_emplace(key);
    BackwardPlan& plan = entry->second;
    if (!added) return plan;

    const Index cap = attention_backward_workspace(shape, backend);
    const std::array<std::pair<Index, Index>, 3> pieces{
        {{shape.batch, shape.kv_heads}, {shape.batch, 1}, {1, 1}}};
    for (const auto& [batch, kv_heads] : pieces) {
      key.batch = batch;
      key.kv_heads = kv_heads;
      key.query_heads = kv_heads * (shape.query_heads / shape.kv_heads);
      const BuiltGraph& built = graph(key);
      if (!built.refusal.empty()) {
        plan.refusal = built.refusal;
      } else if (built.workspace_bytes > cap) {
        plan.refusal = fmt::format(
            "cuDNN's backward attention wants {} of workspace for {} batch item(s) and {} KV "
            "head(s), the plan gives {}",
            format_bytes(built.workspace_bytes), batch, kv_heads, format_bytes(cap));
      } else {
        plan = {.built = &built, .batch = batch, .kv_heads = kv_heads, .refusal = {}};
        break;
      }
    }
    return plan;
  }

  void execute(CUstream_st* stream, const BuiltGraph& built,
               std::unordered_map<std::int64_t, void*>& tensors, const Workspace& workspace) {
    require(built.workspace_bytes <= workspace.bytes, "cuDNN attention's workspace is too small");
    if (const cudnnStatus_t status = cudnnSetStream(handle_, stream);
        status != CUDNN_STATUS_SUCCESS)
      throw Error(fmt::format("cuDNN: choosing a stream: {}", cudnnGetErrorString(status)));
    fe::error_object status = built.graph->execute(handle_, tensors, workspace.data);
    if (status.is_bad())
      throw Error(fmt::format("cuDNN: running attention: {}", status.get_message()));
  }

  cudnnHandle_t handle_ = nullptr;
  std::string open_refusal_;
  std::map<GraphKey, BuiltGraph> graphs_;
  std::map<GraphKey, BackwardPlan> backward_plans_;
};

}  // namespace

std::unique_ptr<CudnnAttention> make_cudnn_attention(DType compute) {
  return std::make_unique<Cudnn>(compute);
}

}  // namespace megatrain::ops::cuda
