#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/ops/cuda/addend.h"
#include "core/ops/cuda/gemm_library.h"

namespace megatrain::ops::cuda {

namespace {

/// Partial sums of a split product stay in fp32, in the workspace, and a second kernel adds them in
/// order. The other schemes round partial sums to the output type.
constexpr std::uint32_t kReductionSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

/// The library looks no further than this when it picks a kernel by alignment.
constexpr std::uint32_t kMaximumAlignment = 256;

void check(cublasStatus_t status, std::string_view what,
           std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(fmt::format("cuBLASLt: {}: {} ({}, line {})", what, cublasLtGetStatusString(status),
                            cublasLtGetStatusName(status), where.line()));
}

cudaDataType_t cuda_type(DType type) { return type == DType::f32 ? CUDA_R_32F : CUDA_R_16BF; }

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t lowest_bit = address & (~address + 1);
  if (lowest_bit == 0 || lowest_bit > kMaximumAlignment) return kMaximumAlignment;
  return static_cast<std::uint32_t>(lowest_bit);
}

/// All that the choice of an algorithm may depend on.
struct GemmKey {
  Index m, n, k, lda, ldb, ldc, ldd;
  bool transpose_a, transpose_b, add, bias;
  DType in, out;
  std::uint32_t align_a, align_b, align_c, align_d, align_bias;
  auto operator<=>(const GemmKey&) const = default;
};

GemmKey key_of(const Gemm& op) {
  const bool add = op.c != nullptr;
  return {op.m,
          op.n,
          op.k,
          op.lda,
          op.ldb,
          add ? op.ldc : op.ldd,
          op.ldd,
          op.transpose_a,
          op.transpose_b,
          add,
          op.bias != nullptr,
          op.in,
          op.out,
          alignment_of(op.a),
          alignment_of(op.b),
          alignment_of(add ? op.c : op.d),
          alignment_of(op.d),
          op.bias == nullptr ? 0 : alignment_of(op.bias)};
}

template <auto Destroy>
struct Destroyer {
  void operator()(auto* handle) const { static_cast<void>(Destroy(handle)); }
};
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>>;
using Description =
    std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

Layout make_layout(DType type, Index rows, Index columns, Index pitch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), pitch),
        "describing a matrix");
  return Layout(layout);
}

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, Value value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), attribute,
                                       static_cast<const void*>(&value), sizeof(value)),
        "describing a product");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "stating what an algorithm may use");
}

/// The library is column-major, in which our D is D^T = op(B)^T op(A)^T: its first operand is our
/// B, its second our A, and a row-major matrix is its own transpose with the same pitch.
struct GemmPlan {
  Description description;
  Layout first, second, c, d;
  cublasLtMatmulAlgo_t algorithm{};
  Index workspace_bytes = 0;
};

std::string shape_text(const GemmKey& key) {
  return fmt::format("[{},{}] = [{},{}]{} . [{},{}]{}, {} to {}", key.m, key.n, key.m, key.k,
                     key.transpose_a ? "^T" : "", key.k, key.n, key.transpose_b ? "^T" : "",
                     name(key.in), name(key.out));
}

/// @param bias  any pointer of the key's alignment: the heuristics want to see one
/// @return nothing when the library has no algorithm
std::optional<GemmPlan> make_plan(cublasLtHandle_t handle, const GemmKey& key, const void* bias) {
  GemmPlan plan;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
  plan.description.reset(description);
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  plan.first = key.transpose_b ? make_layout(key.in, key.k, key.n, key.ldb)
                               : make_layout(key.in, key.n, key.k, key.ldb);
  plan.second = key.transpose_a ? make_layout(key.in, key.m, key.k, key.lda)
                                : make_layout(key.in, key.k, key.m, key.lda);
  plan.c = make_layout(key.out, key.n, key.m, key.ldc);
  plan.d = make_layout(key.out, key.n, key.m, key.ldd);

  cublasLtMatmulPreference_t raw_preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw_preference), "stating what an algorithm may use");
  const Preference preference(raw_preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kGemmWorkspace));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductionSchemes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_d);

  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.first.get(), plan.second.get(), plan.c.get(),
      plan.d.get(), preference.get(), 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    return std::nullopt;
  const std::string what = fmt::format("choosing an algorithm for the product {}", shape_text(key));
  check(status, what);
  check(result.state, what);
  plan.algorithm = result.algo;
  plan.workspace_bytes = static_cast<Index>(result.workspaceSize);
  return plan;
}

}  // namespace

struct GemmLibrary::State {
  cublasLtHandle_t handle = nullptr;
  std::map<GemmKey, std::optional<GemmPlan>> plans;

  State() { check(cublasLtCreate(&handle), "opening the library"); }
  ~State() { static_cast<void>(cublasLtDestroy(handle)); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The plan of a product; nullptr when the library cannot do all of it in one call.
  const GemmPlan* find(const Gemm& op) {
    // A bias has to be of the output's type.
    if (op.bias != nullptr && op.in != op.out) return nullptr;
    const GemmKey key = key_of(op);
    auto found = plans.find(key);
    if (found == plans.end()) found = plans.emplace(key, make_plan(handle, key, op.bias)).first;
    return found->second ? &*found->second : nullptr;
  }

  void run(CUstream_st* stream, const GemmPlan& plan, const Gemm& op) {
    require(plan.workspace_bytes <= op.workspace.bytes, "a product's workspace is too small");
    if (op.bias != nullptr) set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias);
    const float alpha = 1;
    const float beta = op.c == nullptr ? 0 : 1;
    const cublasStatus_t status = cublasLtMatmul(
        handle, plan.description.get(), &alpha, op.b, plan.first.get(), op.a, plan.second.get(),
        &beta, op.c == nullptr ? op.d : op.c, plan.c.get(), op.d, plan.d.get(), &plan.algorithm,
        op.workspace.data, static_cast<std::size_t>(op.workspace.bytes), stream);
    if (status != CUBLAS_STATUS_SUCCESS)
      check(status, fmt::format("the product {}", shape_text(key_of(op))));
  }
};

GemmLibrary::GemmLibrary() : state_(std::make_unique<State>()) {}
GemmLibrary::~GemmLibrary() = default;

void GemmLibrary::run(CUstream_st* stream, const Gemm& op) {
  require(op.m >= 0 && op.n >= 0 && op.k >= 0, "a product of negative size");
  require(op.in == op.out || op.in == DType::bf16, "a product of fp32 operands into bf16");
  require(op.c == nullptr || op.c != op.d || op.ldc == op.ldd,
          "a product that accumulates in place with two pitches");
  if (op.m == 0 || op.n == 0) return;
  if (op.k == 0) {
    if (op.c != op.d || op.bias != nullptr) write_addend(stream, op);
    return;
  }
  if (const GemmPlan* plan = state_->find(op); plan != nullptr) {
    state_->run(stream, *plan, op);
    return;
  }
  // Without a fused bias: the addend first, the product on top of it.
  Gemm rest = op;
  if (op.bias != nullptr) {
    rest.bias = nullptr;
    rest.c = op.d;
    rest.ldc = op.ldd;
  }
  const GemmPlan* plan = op.bias == nullptr ? nullptr : state_->find(rest);
  if (plan == nullptr)
    throw Error(fmt::format("cuBLASLt has no algorithm for the product {} (pitches {}, {}, {})",
                            shape_text(key_of(rest)), op.lda, op.ldb, op.ldd));
  write_addend(stream, op);
  state_->run(stream, *plan, rest);
}

}  // namespace megatrain::ops::cuda
