#pragma once
/// @file
/// Runs any op on any device against a reference written in fp64.
///
/// A test derives its suite from OpTest and is instantiated once with op_cases(); it then runs for
/// every (device, type), and its ctest name ends in "/cpu_fp32", "/cuda_bf16", ...:
///
///     class NormTest : public OpTest {};
///     TEST_P(NormTest, forward) {
///       Buffer x = bench().input(type(), random_values(rows * columns, 1));
///       Buffer y = bench().output(type(), rows * columns);           // poisoned with 0xFF
///       bench().run(NormForward{.rows = rows, ..., .x = x.data(), .y = y.data()});
///       EXPECT_LT(relative_error(y.values(), reference(x.values())), tolerance(type()));
///     }
///     INSTANTIATE_TEST_SUITE_P(Ops, NormTest, testing::ValuesIn(op_cases()), op_case_name);
///
/// The program is registered with megatrain_op_test(name SOURCES ...) (tests/ops/CMakeLists.txt),
/// which labels the CUDA cases `gpu`. They are skipped, not failed, where there is no GPU.
/// Tests of one device alone use op_cases_on(DeviceKind::cuda) in the same way.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/device/device.h"
#include "core/ops/ops.h"

namespace megatrain::optest {

/// Numbers as references see them. What a device stores is rounded to its type.
using Values = std::vector<double>;
using Bytes = std::vector<std::byte>;

/// Uniform in [-scale, scale); the same on every machine for the same seed.
Values random_values(Index count, std::uint64_t seed, double scale = 1);
std::vector<std::int32_t> random_ids(Index count, std::uint64_t seed, std::int32_t below);

/// ‖out - reference‖ / ‖reference‖ (‖out‖ when the reference is zero). NaN when an element that
/// the op should have written still holds the poison.
double relative_error(std::span<const double> out, std::span<const double> reference);

/// A bound for one rounding to `type` of a result computed in fp32: norm-wise, not per element.
constexpr double tolerance(DType type) { return type == DType::f32 ? 2e-6 : 4e-3; }

/// Same bits, with the first difference named.
testing::AssertionResult same_bits(const Bytes& a, const Bytes& b);

class OpBench;

/// Device memory between two guard zones. Reading checks that the zones are untouched.
class Buffer {
 public:
  [[nodiscard]] void* data() const;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data());
  }
  /// The bytes on the device now.
  [[nodiscard]] Bytes bytes() const;
  /// The elements on the device now, widened; only for f32 and bf16 buffers.
  [[nodiscard]] Values values() const;
  /// The elements as they are.
  template <class T>
  [[nodiscard]] std::vector<T> raw() const {
    const Bytes b = bytes();
    std::vector<T> out(b.size() / sizeof(T));
    std::copy(b.begin(), b.end(), reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  void write(std::span<const std::byte> bytes);
  /// Fills with 0xFF: NaN in every floating type, -1 in every integer.
  void poison();

 private:
  friend class OpBench;
  Buffer(OpBench& bench, Index bytes, std::optional<DType> type);
  OpBench* bench_;
  Index size_;
  std::optional<DType> type_;
  std::unique_ptr<DeviceMemory> memory_;
};

/// One device with its op table and one stream.
class OpBench {
 public:
  /// @param compute  what make_ops is asked for
  /// @param threads  CPU only; 0: all
  OpBench(DeviceKind kind, DType compute, int threads = 0);

  /// Values rounded to `type`, on the device.
  Buffer input(DType type, const Values& values);
  /// Elements as they are (ids, tables).
  template <class T>
  Buffer input_raw(const std::vector<T>& elements) {
    Buffer buffer(*this, static_cast<Index>(elements.size() * sizeof(T)), std::nullopt);
    buffer.write(std::as_bytes(std::span(elements)));
    return buffer;
  }
  /// `count` poisoned elements.
  Buffer output(DType type, Index count);
  /// Poisoned memory: workspaces, fp64 partials.
  Buffer scratch(Index bytes);

  /// Runs one op and waits for it.
  template <class Arguments>
  void run(const Arguments& arguments) {
    ops_->run(*stream_, arguments);
    stream_->synchronize();
  }

  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] const ops::Ops& ops() const { return *ops_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<ops::Ops> ops_;
  std::unique_ptr<Stream> stream_;
};

inline ops::Workspace workspace(const Buffer& buffer, Index bytes) {
  return {.data = buffer.data(), .bytes = bytes};
}

struct OpCase {
  DeviceKind device = DeviceKind::cpu;
  DType type = DType::f32;
};

inline void PrintTo(const OpCase& c, std::ostream* out) {
  *out << name(c.device) << ' ' << name(c.type);
}

/// Every (device, type) of this build; CUDA is in a CUDA build whether or not there is a GPU.
std::vector<OpCase> op_cases();
std::vector<OpCase> op_cases_on(DeviceKind device);
/// "cpu_fp32": the suffix of a test's name, by which ctest labels are given.
std::string op_case_name(const testing::TestParamInfo<OpCase>& info);

/// The suite that op tests derive from.
class OpTest : public testing::TestWithParam<OpCase> {
 protected:
  /// Opens the device; skips where there is none, or where the CPU cannot compute in the type.
  void SetUp() override;
  [[nodiscard]] OpBench& bench() { return *bench_; }
  [[nodiscard]] DType type() const { return GetParam().type; }
  /// On the CPU: runs `outputs` with 1, 2 and 3 threads, on GPUs twice, and expects the same bits.
  void expect_reproducible(const std::function<Bytes(OpBench&)>& outputs);
  /// Skips the test (returns true) when the host has less free memory than `bytes`.
  [[nodiscard]] static bool lacks_memory(Index bytes);

 private:
  std::unique_ptr<OpBench> bench_;
};

}  // namespace megatrain::optest
