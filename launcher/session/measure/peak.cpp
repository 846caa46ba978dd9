#include "launcher/session/measure/peak.h"

#include <algorithm>
#include <array>
#include <functional>

#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// A run shall not wait for a number that only scales another one.
constexpr double kPeakSeconds = 0.02;
/// Of one product: some milliseconds on two cores.
constexpr double kPeakFlops = 1e9;

/// Tokens of a micro-batch that keep such a device busy.
constexpr Index busy_tokens(DeviceKind kind) { return kind == DeviceKind::cuda ? 8192 : 1024; }

/// FLOP/s of the products of an MLP: forward, gradient of the input, gradient of the weights.
double measure_products(Machine& machine, const ProductShape& shape, double least_seconds) {
  const auto stream = machine.device->make_stream("measurement");
  const DType type = machine.compute;
  const auto [tokens, hidden, inner] = shape;
  const Index x_bytes = tokens * hidden * size_of(type);
  const Index y_bytes = tokens * inner * size_of(type);
  const Index w_bytes = hidden * inner * size_of(type);
  const Index g_bytes = hidden * inner * size_of(DType::f32);
  Scratch scratch(*machine.device, *stream,
                  Scratch::room({x_bytes, y_bytes, w_bytes, g_bytes, ops::kGemmWorkspace}));
  std::byte* x = scratch.take(x_bytes);
  std::byte* y = scratch.take(y_bytes);
  std::byte* w = scratch.take(w_bytes);
  std::byte* g = scratch.take(g_bytes);
  const ops::Workspace workspace{scratch.take(ops::kGemmWorkspace), ops::kGemmWorkspace};
  const std::array products = {
      ops::Gemm{.m = tokens,
                .n = inner,
                .k = hidden,
                .a = x,
                .lda = hidden,
                .b = w,
                .ldb = hidden,
                .transpose_b = true,
                .in = type,
                .d = y,
                .ldd = inner,
                .out = type,
                .workspace = workspace},
      ops::Gemm{.m = tokens,
                .n = hidden,
                .k = inner,
                .a = y,
                .lda = inner,
                .b = w,
                .ldb = hidden,
                .in = type,
                .d = x,
                .ldd = hidden,
                .out = type,
                .workspace = workspace},
      ops::Gemm{.m = inner,
                .n = hidden,
                .k = tokens,
                .a = y,
                .lda = inner,
                .transpose_a = true,
                .b = x,
                .ldb = hidden,
                .in = type,
                .d = g,
                .ldd = hidden,
                .out = DType::f32,
                .workspace = workspace},
  };
  double seconds = 0;
  for (const ops::Gemm& product : products)
    seconds += seconds_a_call([&] { machine.ops->run(*stream, product); },
                              [&] { stream->synchronize(); }, least_seconds);
  return static_cast<double>(products.size()) * shape.flops() / seconds;
}

}  // namespace

ProductShape peak_shape(DeviceKind kind, const ModelConfig& config) {
  ProductShape shape{busy_tokens(kind), config.hidden, config.intermediate};
  if (kind == DeviceKind::cuda) return shape;
  while (shape.flops() > kPeakFlops) {
    Index& largest = std::max(
        {std::ref(shape.tokens), std::ref(shape.hidden), std::ref(shape.inner)}, std::less<>());
    largest = ceil_div(largest, 2);
  }
  return shape;
}

double measure_peak(Machine& machine, const ModelConfig& config) {
  return measure_products(machine, peak_shape(machine.kind, config), kPeakSeconds);
}

}  // namespace megatrain::launcher
