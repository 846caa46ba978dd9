#include "core/ops/cpu/gemm_cache.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>

#include "core/base/error.h"
#include "core/ops/cpu/kernels.h"

// Distributions build oneDNN with OpenMP. Weak, because a build on another runtime lacks them.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int threads);
}

namespace megatrain::ops::cpu {

namespace {

/// While it lives, oneDNN uses the calling thread alone. This holds for making a primitive too:
/// its blocking, and with it the order of additions, depends on the number of threads it sees.
/// OpenMP keeps that number per thread, so pool threads do not disturb each other.
class OneThread {
 public:
  OneThread() {
    if (omp_set_num_threads == nullptr) return;
    before_ = omp_get_max_threads();
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ > 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 1;
};

dnnl::memory::data_type data_type(DType type) {
  return type == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(Index rows, Index columns, DType type, Index pitch, bool transposed) {
  return {{rows, columns},
          data_type(type),
          transposed ? dnnl::memory::dims{1, pitch} : dnnl::memory::dims{pitch, 1}};
}

/// oneDNN 2 describes an operation in two steps, oneDNN 3 in one; a template, so that only the
/// form that the installed version has is looked at.
template <class Matmul, class... Descriptors>
auto describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
              const Descriptors&... descriptors) {
  if constexpr (requires { typename Matmul::desc; })
    return
        typename Matmul::primitive_desc(typename Matmul::desc(descriptors...), attributes, engine);
  else
    return typename Matmul::primitive_desc(engine, descriptors..., attributes);
}

dnnl::matmul::primitive_desc describe_tile(const dnnl::engine& engine, const TileShape& shape) {
  dnnl::primitive_attr attributes;
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  // The library's own scratchpad would be shared by the threads that run one primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
  const auto a = matrix(shape.m, shape.k, shape.in, shape.lda, shape.transpose_a);
  const auto b = matrix(shape.k, shape.n, shape.in, shape.ldb, shape.transpose_b);
  const auto d = matrix(shape.m, shape.n, shape.out, shape.ldd, false);
  if (!shape.bias) return describe<dnnl::matmul>(engine, attributes, a, b, d);
  const auto bias = matrix(1, shape.n, shape.in, shape.n, false);
  return describe<dnnl::matmul>(engine, attributes, a, b, bias, d);
}

dnnl::engine cpu_engine() { return {dnnl::engine::kind::cpu, 0}; }

/// Scratch memory of the calling thread; grows to the largest primitive that it runs.
void* thread_scratch(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }
  };
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, kAlignment)));
    size = bytes;
  }
  return memory.get();
}

void check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success)
    throw Error(fmt::format("oneDNN failed to {} a matrix product (status {})", what,
                            static_cast<int>(status)));
}

}  // namespace

struct TileProduct::Primitive {
  explicit Primitive(const TileShape& shape)
      : engine(cpu_engine()),
        description(describe_tile(engine, shape)),
        matmul(description),
        a(description.src_desc()),
        b(description.weights_desc()),
        d(description.dst_desc()),
        scratch(description.scratchpad_desc()),
        has_bias(shape.bias) {
    if (has_bias) bias = description.query_md(dnnl::query::weights_md, 1);
  }
  dnnl::engine engine;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  dnnl::memory::desc a, b, d, bias, scratch;
  bool has_bias;
};

TileProduct::TileProduct(const TileShape& shape) {
  const OneThread alone;
  try {
    primitive_ = std::make_unique<const Primitive>(shape);
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("oneDNN has no kernel for a {} x {} x {} product of {} to {}: {}",
                            shape.m, shape.n, shape.k, name(shape.in), name(shape.out),
                            error.message));
  }
}

TileProduct::~TileProduct() = default;

void TileProduct::run(const void* a, const void* b, const void* bias, void* d) const {
  const OneThread alone;
  const Primitive& p = *primitive_;
  // oneDNN's interface knows no constant memory; it writes to the destination alone.
  const auto memory = [&](const dnnl::memory::desc& description, const void* data) {
    return dnnl::memory(description, p.engine, const_cast<void*>(data));
  };
  const auto memory_a = memory(p.a, a);
  const auto memory_b = memory(p.b, b);
  const auto memory_d = memory(p.d, d);
  const auto memory_scratch = memory(p.scratch, thread_scratch(p.scratch.get_size()));
  dnnl::memory memory_bias;
  std::array<dnnl_exec_arg_t, 5> arguments{{{DNNL_ARG_SRC, memory_a.get()},
                                            {DNNL_ARG_WEIGHTS, memory_b.get()},
                                            {DNNL_ARG_DST, memory_d.get()},
                                            {DNNL_ARG_SCRATCHPAD, memory_scratch.get()},
                                            {DNNL_ARG_BIAS, nullptr}}};
  if (p.has_bias) {
    memory_bias = memory(p.bias, bias);
    arguments[4].memory = memory_bias.get();
  }
  dnnl::stream stream(p.engine);
  check(dnnl_primitive_execute(p.matmul.get(), stream.get(), p.has_bias ? 5 : 4, arguments.data()),
        "run");
  check(dnnl_stream_wait(stream.get()), "finish");
}

const TileProduct& GemmCache::find(const TileShape& shape) {
  const std::lock_guard lock(mutex_);
  auto& product = products_[shape];
  if (!product) product = std::make_unique<const TileProduct>(shape);
  return *product;
}

std::string compute_refusal(const DeviceInfo& processor, DType compute) {
  if (compute == DType::f32) return {};
  try {
    const TileProduct probe({.m = 16,
                             .n = 16,
                             .k = 16,
                             .lda = 16,
                             .ldb = 16,
                             .ldd = 16,
                             .in = compute,
                             .out = compute});
    return {};
  } catch (const Error&) {
    return fmt::format(
        "this processor cannot compute in bf16: that needs AVX-512 (avx512_core) or better on x86, "
        "or the bf16 extension on ARM; {} has {}. Use --compute fp32",
        processor.name, processor.numerics);
  }
}

CpuOpState::CpuOpState() : gemms(std::make_unique<GemmCache>()) {}
CpuOpState::~CpuOpState() = default;

}  // namespace megatrain::ops::cpu
