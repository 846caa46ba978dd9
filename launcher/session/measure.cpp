#include "launcher/session/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <system_error>
#include <vector>

#include "core/optim/adamw.h"
#include "core/store/host_arena.h"
#include "io/atomic_file.h"
#include "io/checkpoint/block_pool.h"
#include "io/direct_file.h"

namespace megatrain::launcher {

namespace {

/// Long enough for clocks and caches to settle.
constexpr double kMeasuredSeconds = 0.3;
/// A run shall not wait for a number that only scales another one.
constexpr double kPeakSeconds = 0.02;
/// Of one product: some milliseconds on two cores.
constexpr double kPeakFlops = 1e9;

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// Seconds that one call takes: calls in rounds of growing size until a round is long enough.
/// @param wait  returns when the work that `enqueue` started is done
double seconds_a_call(const std::function<void()>& enqueue, const std::function<void()>& wait,
                      double least_seconds = kMeasuredSeconds) {
  enqueue();
  wait();
  for (Index calls = 1;; calls *= 2) {
    const double begin = seconds_now();
    for (Index i = 0; i < calls; ++i) enqueue();
    wait();
    const double seconds = seconds_now() - begin;
    if (seconds >= least_seconds) return seconds / static_cast<double>(calls);
  }
}

/// Device memory in pieces, filled with small numbers that are not all alike: zeros would make
/// processors look faster than they are.
class Scratch {
 public:
  Scratch(Device& device, Stream& stream, Index bytes) : memory_(device.allocate(bytes)) {
    constexpr Index kPattern = Index{1} << 20;
    ThreadPool one(1);
    const HostArena pattern("measurement", kPattern, device, one);
    // Bytes with exponents near 1/100 in both types: every other one is 0x3C or 0xBC.
    for (Index i = 0; i < kPattern; ++i)
      pattern.data()[i] =
          static_cast<std::byte>(i % 2 == 0 ? i / 2 * 37 % 251 : (i % 6 == 1 ? 0xBC : 0x3C));
    for (Index at = 0; at < bytes; at += kPattern)
      stream.copy(memory_->data() + at, pattern.data(), std::min(kPattern, bytes - at));
    stream.synchronize();
  }

  std::byte* take(Index bytes) {
    std::byte* piece = memory_->data() + taken_;
    taken_ += round_up(bytes, 256);
    require(taken_ <= memory_->bytes(), "a measurement's memory is large enough");
    return piece;
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  Index taken_ = 0;
};

Index room(std::initializer_list<Index> pieces) {
  Index bytes = 0;
  for (const Index piece : pieces) bytes += round_up(piece, 256);
  return bytes;
}

double measure_elementwise(Machine& machine, const ModelConfig& config, Index tokens) {
  const auto stream = machine.device->make_stream("measurement");
  const Index elements = tokens * config.intermediate;
  const Index bytes = elements * size_of(machine.compute);
  Scratch scratch(*machine.device, *stream, room({bytes, bytes, bytes}));
  const std::byte* gate = scratch.take(bytes);
  const std::byte* up = scratch.take(bytes);
  const ops::SwigluForward op{.rows = tokens,
                              .columns = config.intermediate,
                              .type = machine.compute,
                              .gate = gate,
                              .up = up,
                              .in_stride = config.intermediate,
                              .y = scratch.take(bytes)};
  const double seconds =
      seconds_a_call([&] { machine.ops->run(*stream, op); }, [&] { stream->synchronize(); });
  return 3.0 * static_cast<double>(bytes) / seconds;
}

/// Copies of the size of a large unit.
void measure_copies(Machine& machine, ThreadPool& pool, Rates& rates) {
  const Index bytes = machine.kind == DeviceKind::cuda ? Index{256} << 20 : Index{64} << 20;
  const auto stream = machine.device->make_stream("measurement");
  const auto memory = machine.device->allocate(bytes);
  const HostArena host("measurement", bytes, *machine.device, pool);
  const auto wait = [&] { stream->synchronize(); };
  const auto size = static_cast<double>(bytes);
  rates.to_device =
      size / seconds_a_call([&] { stream->copy(memory->data(), host.data(), bytes); }, wait);
  rates.to_host =
      size / seconds_a_call([&] { stream->copy(host.data(), memory->data(), bytes); }, wait);
}

/// AdamW on more elements than the caches hold.
double measure_update(const Machine& machine, ThreadPool& pool) {
  constexpr Index kElements = Index{1} << 23;
  constexpr auto kSize = static_cast<std::size_t>(kElements);
  const bool split = machine.master == MasterFormat::split;
  std::vector<std::byte> weights(kSize * (split ? 2 : 4));
  std::vector<std::int16_t> remainder(split ? kSize : 0);
  std::vector<float> first(kSize);
  std::vector<float> second(kSize);
  const std::vector<std::byte> gradient(kSize * (split ? 2 : 4));
  const AdamWSlice slice{.count = kElements,
                         .weights = weights.data(),
                         .remainder = split ? remainder.data() : nullptr,
                         .exp_avg = first.data(),
                         .exp_avg_sq = second.data(),
                         .gradient = gradient.data(),
                         .gradient_type = machine.compute};
  const AdamWCoefficients coefficients = adamw_coefficients({}, 1e-4, 1, 1, true);
  const double seconds = seconds_a_call([&] { adamw_update(slice, coefficients, pool); }, [] {});
  return static_cast<double>(kElements) / seconds;
}

/// What the issuing thread pays for one instruction: a small op, its event, a wait for it.
double measure_launch(Machine& machine) {
  const auto stream = machine.device->make_stream("measurement");
  const auto other = machine.device->make_stream("measurement 2");
  const auto event = machine.device->make_event();
  const auto memory = machine.device->allocate(256);
  return seconds_a_call(
      [&] {
        stream->fill(memory->data(), 0, 256);
        stream->record(*event);
        other->wait(*event);
      },
      [&] {
        stream->synchronize();
        other->synchronize();
      });
}

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
                  room({x_bytes, y_bytes, w_bytes, g_bytes, ops::kGemmWorkspace}));
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

/// An empty file that goes with its owner.
class ScratchFile {
 public:
  explicit ScratchFile(std::filesystem::path path) : path_(std::move(path)) {
    io::write_file(path_, "");
  }
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

 private:
  std::filesystem::path path_;
};

}  // namespace

ProductShape peak_shape(DeviceKind kind, const ModelConfig& config) {
  ProductShape shape{measured_tokens(kind), config.hidden, config.intermediate};
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

double measure_disk(const std::filesystem::path& folder) {
  constexpr int kWriters = 8;
  constexpr Index kMostBlocks = (Index{2} << 30) / io::kBlockBytes;
  constexpr double kDiskSeconds = 2;
  const std::filesystem::path path =
      folder / fmt::format("megatrain-bench-{}.tmp", static_cast<long>(::getpid()));
  const ScratchFile scratch(path);
  io::DirectFile file(path, io::DirectFile::Mode::write);
  io::BlockPool blocks(kWriters);
  ThreadPool writers(kWriters);
  // In rounds, until the time is up: each leaves the file where the next one goes on.
  double seconds = 0;
  Index written = 0;
  while (written < kMostBlocks && seconds < kDiskSeconds) {
    const double begin = seconds_now();
    constexpr Index kRound = 4 * kWriters;
    writers.for_each(kRound, [&](Index i) {
      const io::BlockPool::Block block = blocks.acquire();
      // Bytes that no disk can make short.
      std::mt19937_64 random(static_cast<std::uint64_t>(written + i));
      for (std::size_t at = 0; at < block.bytes().size(); at += 4096) {
        const std::uint64_t value = random();
        std::memcpy(block.bytes().data() + at, &value, sizeof(value));
      }
      file.write((written + i) * io::kBlockBytes, block.bytes());
    });
    written += kRound;
    seconds += seconds_now() - begin;
  }
  const double begin = seconds_now();
  file.sync();
  seconds += seconds_now() - begin;
  return static_cast<double>(written * io::kBlockBytes) / seconds;
}

Rates measure_rates(Machine& machine, const ModelConfig& config, Index tokens, ThreadPool& pool,
                    const std::filesystem::path& folder) {
  Rates rates;
  rates.source = "measured";
  rates.flops =
      measure_products(machine, {tokens, config.hidden, config.intermediate}, kMeasuredSeconds);
  rates.device_bandwidth = measure_elementwise(machine, config, tokens);
  measure_copies(machine, pool, rates);
  rates.update = measure_update(machine, pool);
  rates.launch = measure_launch(machine);
  rates.disk = measure_disk(folder);
  return rates;
}

}  // namespace megatrain::launcher
