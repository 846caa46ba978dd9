#include "tests/ops/op_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "core/base/bfloat16.h"

namespace megatrain::optest {

namespace {

constexpr Index kGuard = 256;
constexpr auto kGuardByte = std::byte{0xA5};

/// Copies between a plain host vector and the device, registered for the time of the copy.
void transfer(OpBench& bench, void* host, Index bytes, const std::function<void()>& copy) {
  const auto registration = bench.device().register_host(host, bytes);
  copy();
  bench.stream().synchronize();
}

}  // namespace

Values random_values(Index count, std::uint64_t seed, double scale) {
  std::mt19937_64 engine(seed);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values)
    value = scale * (static_cast<double>(engine() >> 11) * 0x1p-52 - 1.0);
  return values;
}

std::vector<std::int32_t> random_ids(Index count, std::uint64_t seed, std::int32_t below) {
  std::mt19937_64 engine(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids) id = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(below));
  return ids;
}

double relative_error(std::span<const double> out, std::span<const double> reference) {
  if (out.size() != reference.size()) return std::nan("");
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    difference += (out[i] - reference[i]) * (out[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

testing::AssertionResult same_bits(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size())
    return testing::AssertionFailure() << "sizes differ: " << a.size() << " and " << b.size();
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
  if (x == a.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "byte " << (x - a.begin()) << " of " << a.size()
         << " differs: " << std::to_integer<int>(*x) << " and " << std::to_integer<int>(*y);
}

Buffer::Buffer(OpBench& bench, Index bytes, std::optional<DType> type)
    : bench_(&bench),
      size_(bytes),
      type_(type),
      memory_(bench.device().allocate(bytes + 2 * kGuard)) {
  bench.stream().fill(memory_->data(), std::to_integer<std::uint8_t>(kGuardByte), kGuard);
  bench.stream().fill(memory_->data() + kGuard + size_, std::to_integer<std::uint8_t>(kGuardByte),
                      kGuard);
  poison();
}

void* Buffer::data() const { return memory_->data() + kGuard; }

Bytes Buffer::bytes() const {
  Bytes all(static_cast<std::size_t>(size_ + 2 * kGuard));
  transfer(*bench_, all.data(), size_ + 2 * kGuard,
           [&] { bench_->stream().copy(all.data(), memory_->data(), size_ + 2 * kGuard); });
  const auto guard = [](std::byte b) { return b == kGuardByte; };
  EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kGuard, guard)) << "write before the buffer";
  EXPECT_TRUE(std::all_of(all.end() - kGuard, all.end(), guard)) << "write behind the buffer";
  return {all.begin() + kGuard, all.end() - kGuard};
}

Values Buffer::values() const {
  if (!type_) throw LogicError("values() of a buffer without a floating type; use raw()");
  Values out;
  if (*type_ == DType::f32) {
    for (const float value : raw<float>()) out.push_back(value);
  } else {
    for (const bfloat16 value : raw<bfloat16>()) out.push_back(to_float(value));
  }
  return out;
}

void Buffer::write(std::span<const std::byte> bytes) {
  if (static_cast<Index>(bytes.size()) != size_) throw LogicError("write() of another size");
  if (size_ == 0) return;
  Bytes staging(bytes.begin(), bytes.end());
  transfer(*bench_, staging.data(), size_,
           [&] { bench_->stream().copy(data(), staging.data(), size_); });
}

void Buffer::poison() {
  if (size_ > 0) bench_->stream().fill(data(), 0xFF, size_);
  bench_->stream().synchronize();
}

OpBench::OpBench(DeviceKind kind, DType compute, int threads)
    : device_(kind == DeviceKind::cpu ? make_cpu_device({.threads = threads}) : make_cuda_device()),
      ops_(std::make_unique<ops::Ops>(ops::make_ops(*device_, compute))),
      stream_(device_->make_stream("compute")) {}

Buffer OpBench::input(DType type, const Values& values) {
  Buffer buffer = output(type, static_cast<Index>(values.size()));
  if (type == DType::f32) {
    const std::vector<float> rounded(values.begin(), values.end());
    buffer.write(std::as_bytes(std::span(rounded)));
  } else {
    std::vector<bfloat16> rounded;
    for (const double value : values) rounded.push_back(to_bfloat16(static_cast<float>(value)));
    buffer.write(std::as_bytes(std::span(rounded)));
  }
  return buffer;
}

Buffer OpBench::output(DType type, Index count) { return {*this, count * size_of(type), type}; }

Buffer OpBench::scratch(Index bytes) { return {*this, bytes, std::nullopt}; }

std::vector<OpCase> op_cases_on(DeviceKind device) {
#ifndef MEGATRAIN_TEST_CUDA
  if (device == DeviceKind::cuda) return {};
#endif
  return {{device, DType::f32}, {device, DType::bf16}};
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases = op_cases_on(DeviceKind::cpu);
  for (const OpCase& c : op_cases_on(DeviceKind::cuda)) cases.push_back(c);
  return cases;
}

std::string op_case_name(const testing::TestParamInfo<OpCase>& info) {
  return fmt::format("{}_{}", name(info.param.device), name(info.param.type));
}

void OpTest::SetUp() {
  if (GetParam().device == DeviceKind::cuda && cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  try {
    bench_ = std::make_unique<OpBench>(GetParam().device, GetParam().type);
  } catch (const UserError& error) {
    // The one refusal that is right: a CPU that cannot compute in bf16.
    if (GetParam().device != DeviceKind::cpu || GetParam().type != DType::bf16) throw;
    GTEST_SKIP() << error.what();
  }
}

void OpTest::expect_reproducible(const std::function<Bytes(OpBench&)>& outputs) {
  const Bytes first = outputs(*bench_);
  if (GetParam().device == DeviceKind::cuda) {
    EXPECT_TRUE(same_bits(first, outputs(*bench_)));
    return;
  }
  for (const int threads : {1, 2, 3}) {
    OpBench other(DeviceKind::cpu, type(), threads);
    EXPECT_TRUE(same_bits(first, outputs(other))) << threads << " threads";
  }
}

bool OpTest::lacks_memory(Index bytes) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string rest;
  Index kib = 0;
  while (file >> key >> kib && key != "MemAvailable:") std::getline(file, rest);
  return key != "MemAvailable:" || kib * 1024 < bytes;
}

}  // namespace megatrain::optest
