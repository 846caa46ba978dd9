// Everything that takes seconds: all fp32 patterns, and more than 2^31 elements.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/base/split_master.h"
#include "core/ops/cpu/adamw_kernels.h"
#include "core/optim/adamw.h"

namespace megatrain {
namespace {

using ops::cpu::adamw_update_portable;

TEST(SplitMaster, ExactForEveryPatternWithAFiniteBf16) {
  std::uint64_t masters = 0;
  std::uint64_t wrong = 0;
  std::uint32_t bits = 0;
  do {
    const auto value = std::bit_cast<float>(bits);
    const SplitMaster split = split_master(value);
    const auto high = std::bit_cast<std::uint32_t>(to_float(split.high));
    // The definition, in wide integers: the nearest bf16, and the difference of the patterns.
    const auto difference = static_cast<std::int64_t>(bits) - static_cast<std::int64_t>(high);
    const bool finite = (high & 0x7f800000U) != 0x7f800000U && (bits & 0x7f800000U) != 0x7f800000U;
    masters += finite ? 1U : 0U;
    if (finite != is_master(value)) ++wrong;
    if (finite && (difference != split.remainder || difference < -0x8000 || difference > 0x7fff ||
                   std::bit_cast<std::uint32_t>(join_master(split)) != bits))
      ++wrong;
  } while (++bits != 0);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(masters, 2 * std::uint64_t{0x7f7f8000});
}

/// `bytes` of address space that are one small file again and again, then a page of its own at the
/// end: room for 2^31 elements in a few MiB.
class RepeatedMemory {
 public:
  RepeatedMemory(Index bytes, Index period, Index tail) : bytes_(bytes + tail) {
    data_ = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int file = memfd_create("repeated", 0);
    if (data_ == MAP_FAILED || file < 0 || ftruncate(file, period + tail) != 0) return;
    good_ = true;
    for (Index at = 0; at < bytes_ && good_; at += period) {
      const Index size = at < bytes ? period : tail;
      const Index offset = at < bytes ? 0 : period;
      good_ = mmap(data() + at, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, file, offset) != MAP_FAILED;
    }
    close(file);
  }
  ~RepeatedMemory() {
    if (data_ != MAP_FAILED) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  Index bytes_;
  bool good_ = false;
};

TEST(AdamW, MoreThanTwoToThe31Elements) {
  constexpr Index kPeriod = Index{1} << 21;  // elements
  constexpr Index kRepeats = 1024;
  constexpr Index kTail = 17;
  constexpr Index kTailBytes = Index{1} << 16;  // whole pages of any size
  const auto memory = [&](Index element) {
    return RepeatedMemory(kPeriod * kRepeats * element, kPeriod * element, kTailBytes);
  };
  const RepeatedMemory weights = memory(2);
  const RepeatedMemory remainder = memory(2);
  const RepeatedMemory exp_avg = memory(4);
  const RepeatedMemory exp_avg_sq = memory(4);
  const RepeatedMemory gradient = memory(2);
  if (!weights.good() || !remainder.good() || !exp_avg.good() || !exp_avg_sq.good() ||
      !gradient.good())
    GTEST_SKIP() << "this machine does not give 28 GiB of address space";

  AdamWSlice slice;
  slice.count = kPeriod * kRepeats + kTail;
  ASSERT_GT(slice.count, Index{1} << 31);
  slice.weights = weights.data();
  slice.remainder = reinterpret_cast<std::int16_t*>(remainder.data());
  slice.exp_avg = exp_avg.data();
  slice.exp_avg_sq = exp_avg_sq.data();
  slice.gradient = gradient.data();
  slice.master = MasterFormat::split;
  auto* const g = reinterpret_cast<std::uint16_t*>(gradient.data());
  for (Index i = 0; i < kPeriod; ++i) g[i] = to_bfloat16(1e-3F * static_cast<float>(i % 97)).bits;
  for (Index i = 0; i < kTail; ++i)
    g[kPeriod * kRepeats + i] = to_bfloat16(static_cast<float>(i + 1)).bits;

  // One thread: every repeat is the same memory, so that an element is updated kRepeats times, in
  // turn. A piece that lands elsewhere changes the count of some element, or faults.
  const AdamWCoefficients c = adamw_coefficients({}, 1e-3, 1, 1, true);
  ThreadPool pool(1);
  adamw_update(slice, c, pool);

  std::uint16_t high[97 + kTail] = {};
  std::int16_t low[97 + kTail] = {};
  float m[97 + kTail] = {};
  float v[97 + kTail] = {};
  std::uint16_t expected_g[97 + kTail];
  std::memcpy(expected_g, g, sizeof(std::uint16_t) * 97);
  std::memcpy(expected_g + 97, g + kPeriod * kRepeats, sizeof(std::uint16_t) * kTail);
  const AdamWSlice expected{.count = 97 + kTail,
                            .weights = reinterpret_cast<std::byte*>(high),
                            .remainder = low,
                            .exp_avg = reinterpret_cast<std::byte*>(m),
                            .exp_avg_sq = reinterpret_cast<std::byte*>(v),
                            .gradient = reinterpret_cast<const std::byte*>(expected_g),
                            .gradient_type = DType::bf16,
                            .master = MasterFormat::split};
  adamw_update_portable(expected, c);  // the tail's only update
  for (Index repeat = 1; repeat < kRepeats; ++repeat)
    adamw_update_portable(expected.part(0, 97), c);

  const auto* const actual_high = reinterpret_cast<const std::uint16_t*>(slice.weights);
  Index wrong = 0;
  const auto* const actual_m = reinterpret_cast<const float*>(slice.exp_avg);
  const auto* const actual_v = reinterpret_cast<const float*>(slice.exp_avg_sq);
  const auto compare = [&](Index at, Index want) {
    if (actual_high[at] != high[want] || slice.remainder[at] != low[want] ||
        actual_m[at] != m[want] || actual_v[at] != v[want])
      ++wrong;
  };
  for (Index i = 0; i < kPeriod; ++i) compare(i, i % 97);
  for (Index i = 0; i < kTail; ++i) compare(kPeriod * kRepeats + i, 97 + i);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace megatrain
