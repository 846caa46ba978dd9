#include <bit>
#include <cmath>
#include <limits>

#include "core/base/bfloat16.h"
#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::ReduceGradient;

/// type() is the wire type here; the gradient is fp32.
class ReduceGradientTest : public OpTest {
 protected:
  /// The wire's bytes as the host's conversion makes them.
  [[nodiscard]] Bytes wire_of(const std::vector<float>& gradient) const {
    Bytes out;
    for (const float value : gradient) {
      const auto append = [&](const auto& element) {
        const auto bytes = std::as_bytes(std::span(&element, 1));
        out.insert(out.end(), bytes.begin(), bytes.end());
      };
      type() == DType::f32 ? append(value) : append(to_bfloat16(value));
    }
    return out;
  }
};

TEST_P(ReduceGradientTest, norms_and_wire) {
  for (const Index count : {1, 31, 16384, 16385, 100000}) {
    const Values random = random_values(count, 1, 1e-3);
    const std::vector<float> gradient(random.begin(), random.end());
    Buffer in = bench().input_raw(gradient);
    Buffer wire = bench().output(type(), count);
    Buffer partials = bench().scratch(8 * ops::norm_partials(count));
    bench().run(ReduceGradient{.count = count,
                               .gradient = in.as<float>(),
                               .wire_type = type(),
                               .wire = wire.data(),
                               .partials = partials.as<double>()});
    Values want(static_cast<std::size_t>(ops::norm_partials(count)), 0.0);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      want[i / ops::kNormChunk] +=
          static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    EXPECT_LT(relative_error(partials.raw<double>(), want), 1e-13);
    EXPECT_TRUE(same_bits(wire.bytes(), wire_of(gradient)));
  }
}

TEST_P(ReduceGradientTest, squares_that_count_elsewhere_are_left_out) {
  constexpr Index kCount = 3 * ops::kNormChunk + 77;
  const Values random = random_values(kCount, 1);
  const std::vector<float> gradient(random.begin(), random.end());
  ops::UncountedRuns uncounted;
  // Inside a chunk, across chunks, a chunk's very ends, and the end of all.
  for (const auto& [first, last] : {std::pair<Index, Index>{3, 70},
                                    {70, 71},
                                    {ops::kNormChunk - 5, 2 * ops::kNormChunk + 2048},
                                    {3 * ops::kNormChunk, kCount - 1}})
    uncounted.runs[static_cast<std::size_t>(uncounted.count++)] = {first, last};
  Buffer in = bench().input_raw(gradient);
  Buffer wire = bench().output(type(), kCount);
  Buffer partials = bench().scratch(8 * ops::norm_partials(kCount));
  bench().run(ReduceGradient{.count = kCount,
                             .gradient = in.as<float>(),
                             .wire_type = type(),
                             .wire = wire.data(),
                             .partials = partials.as<double>(),
                             .uncounted = uncounted});
  Values want(static_cast<std::size_t>(ops::norm_partials(kCount)), 0.0);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    if (!uncounted.have(static_cast<Index>(i)))
      want[i / ops::kNormChunk] +=
          static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  const auto sums = partials.raw<double>();
  for (std::size_t c = 0; c < want.size(); ++c) EXPECT_NEAR(sums[c], want[c], 1e-12 * want[0]);
  EXPECT_EQ(sums[1], 0);
  EXPECT_TRUE(same_bits(wire.bytes(), wire_of(gradient))) << "all of it is sent";
}

TEST_P(ReduceGradientTest, rounding_of_every_kind_of_value) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> gradient = {0.0F,          -0.0F, Limits::denorm_min(), Limits::min(),
                                 Limits::max(),  // rounds up to infinity
                                 -Limits::max()};
  // Ties to even, both ways, and the values beside them.
  for (const std::uint32_t low : {0x7fffU, 0x8000U, 0x8001U, 0xffffU})
    for (const std::uint32_t high : {0x3f80U, 0x3f81U, 0xbf80U, 0x0000U, 0x0001U, 0x7f7fU})
      gradient.push_back(std::bit_cast<float>(high << 16 | low));
  while (gradient.size() < 67) gradient.push_back(gradient[gradient.size() % 30]);
  const auto count = static_cast<Index>(gradient.size());
  Buffer in = bench().input_raw(gradient);
  Buffer wire = bench().output(type(), count);
  Buffer partials = bench().scratch(8);
  bench().run(ReduceGradient{.count = count,
                             .gradient = in.as<float>(),
                             .wire_type = type(),
                             .wire = wire.data(),
                             .partials = partials.as<double>()});
  EXPECT_TRUE(same_bits(wire.bytes(), wire_of(gradient)));
  EXPECT_TRUE(std::isfinite(partials.raw<double>()[0])) << "squares of fp32 fit fp64";
}

TEST_P(ReduceGradientTest, not_finite_values_reach_norm_and_wire) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{20000}, std::size_t{32769}}) {
      std::vector<float> gradient(32770, 0.5F);
      gradient[place] = bad;
      Buffer in = bench().input_raw(gradient);
      Buffer wire = bench().output(type(), 32770);
      Buffer partials = bench().scratch(8 * 3);
      bench().run(ReduceGradient{.count = 32770,
                                 .gradient = in.as<float>(),
                                 .wire_type = type(),
                                 .wire = wire.data(),
                                 .partials = partials.as<double>()});
      const auto sums = partials.raw<double>();
      for (std::size_t chunk = 0; chunk < 3; ++chunk)
        EXPECT_EQ(std::isfinite(sums[chunk]), chunk != place / 16384);
      const double sent = wire.values()[place];
      if (std::isnan(bad))
        EXPECT_TRUE(std::isnan(sent));
      else
        EXPECT_EQ(sent, static_cast<double>(bad));
    }
  }
}

TEST_P(ReduceGradientTest, same_bits_for_every_thread_count) {
  constexpr Index kCount = 200001;
  expect_reproducible([&](OpBench& on) {
    Buffer in = on.input(DType::f32, random_values(kCount, 1));
    Buffer wire = on.output(type(), kCount);
    Buffer partials = on.scratch(8 * ops::norm_partials(kCount));
    on.run(ReduceGradient{.count = kCount,
                          .gradient = in.as<float>(),
                          .wire_type = type(),
                          .wire = wire.data(),
                          .partials = partials.as<double>()});
    Bytes all = wire.bytes();
    const Bytes more = partials.bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, ReduceGradientTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
