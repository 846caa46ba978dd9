#include <cmath>
#include <numbers>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

double gelu(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double gelu_slope(double x) {
  const double k = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

/// Where exp overflows and underflows.
const Values kEnds = {0.0, -0.0, 20.0, -20.0, 88.0, -88.0, 120.0, -120.0, 1e4, -1e4};

class ActivationTest : public OpTest {};

struct Shape {
  Index rows, columns, stride;
};

TEST_P(ActivationTest, swiglu) {
  // gate and up side by side in one row, as one product writes them
  for (const Shape& s :
       {Shape{1, 1, 2}, Shape{3, 7, 14}, Shape{33, 129, 260}, Shape{2, 20000, 40000}}) {
    const Index count = s.rows * s.columns;
    Buffer packed = bench().input(type(), random_values(s.rows * s.stride, 1, 6));
    Buffer dy = bench().input(type(), random_values(count, 2));
    Buffer y = bench().output(type(), count);
    const Values before = packed.values();
    const Values slopes = dy.values();
    void* const up = packed.as<std::byte>() + s.columns * size_of(type());
    bench().run(ops::SwigluForward{.rows = s.rows,
                                   .columns = s.columns,
                                   .type = type(),
                                   .gate = packed.data(),
                                   .up = up,
                                   .in_stride = s.stride,
                                   .y = y.data()});
    Values want;
    Values want_gradients = before;  // what lies between the rows stays
    for (Index r = 0; r < s.rows; ++r)
      for (Index c = 0; c < s.columns; ++c) {
        const auto gate_at = static_cast<std::size_t>(r * s.stride + c);
        const std::size_t up_at = gate_at + static_cast<std::size_t>(s.columns);
        const double g = before[gate_at];
        const double d = slopes[want.size()];
        const double sg = logistic(g);
        want.push_back(g * sg * before[up_at]);
        want_gradients[gate_at] = d * before[up_at] * sg * (1 + g * (1 - sg));
        want_gradients[up_at] = d * g * sg;
      }
    EXPECT_LT(relative_error(y.values(), want), tolerance(type()));
    bench().run(ops::SwigluBackward{.rows = s.rows,
                                    .columns = s.columns,
                                    .type = type(),
                                    .gate = packed.data(),
                                    .up = up,
                                    .in_stride = s.stride,
                                    .dy = dy.data()});
    EXPECT_LT(relative_error(packed.values(), want_gradients), tolerance(type()));
  }
}

TEST_P(ActivationTest, gelu) {
  for (const Index count : {1, 15, 1000, 40001}) {
    Buffer x = bench().input(type(), random_values(count, 1, 6));
    Buffer dy = bench().input(type(), random_values(count, 2));
    Buffer y = bench().output(type(), count);
    const Values before = x.values();
    const Values slopes = dy.values();
    Values want;
    Values want_gradients;
    for (std::size_t i = 0; i < before.size(); ++i) {
      want.push_back(gelu(before[i]));
      want_gradients.push_back(slopes[i] * gelu_slope(before[i]));
    }
    bench().run(ops::GeluForward{.count = count, .type = type(), .x = x.data(), .y = y.data()});
    EXPECT_LT(relative_error(y.values(), want), tolerance(type()));
    bench().run(ops::GeluBackward{.count = count, .type = type(), .x = x.data(), .dy = dy.data()});
    EXPECT_LT(relative_error(x.values(), want_gradients), tolerance(type()));
  }
}

TEST_P(ActivationTest, far_ends) {
  const auto count = static_cast<Index>(kEnds.size());
  const Values ones(kEnds.size(), 1.0);
  Buffer gate = bench().input(type(), kEnds);
  Buffer up = bench().input(type(), ones);
  Buffer x = bench().input(type(), kEnds);
  Buffer dy = bench().input(type(), ones);
  Buffer silu = bench().output(type(), count);
  Buffer y = bench().output(type(), count);
  const Values ends = x.values();
  bench().run(ops::SwigluForward{.rows = 1,
                                 .columns = count,
                                 .type = type(),
                                 .gate = gate.data(),
                                 .up = up.data(),
                                 .in_stride = count,
                                 .y = silu.data()});
  bench().run(ops::SwigluBackward{.rows = 1,
                                  .columns = count,
                                  .type = type(),
                                  .gate = gate.data(),
                                  .up = up.data(),
                                  .in_stride = count,
                                  .dy = dy.data()});
  bench().run(ops::GeluForward{.count = count, .type = type(), .x = x.data(), .y = y.data()});
  bench().run(ops::GeluBackward{.count = count, .type = type(), .x = x.data(), .dy = dy.data()});
  const Values got[] = {silu.values(), gate.values(), y.values(), x.values()};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const double v = ends[i];
    const double sg = logistic(v);
    const double want[] = {v * sg, sg * (1 + v * (1 - sg)), gelu(v), gelu_slope(v)};
    for (std::size_t k = 0; k < 4; ++k)
      EXPECT_NEAR(got[k][i], want[k], std::abs(want[k]) * 4e-3 + 1e-6) << v << " " << k;
  }
}

TEST_P(ActivationTest, not_a_number_is_kept) {
  Buffer x = bench().input(type(), {1.0, std::nan(""), 2.0});
  Buffer y = bench().output(type(), 3);
  bench().run(ops::GeluForward{.count = 3, .type = type(), .x = x.data(), .y = y.data()});
  const Values got = y.values();
  EXPECT_FALSE(std::isnan(got[0]));
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_FALSE(std::isnan(got[2]));
}

TEST_P(ActivationTest, same_bits_for_every_thread_count) {
  constexpr Index kCount = 100003;
  expect_reproducible([&](OpBench& on) {
    Buffer gate = on.input(type(), random_values(kCount, 1));
    Buffer up = on.input(type(), random_values(kCount, 2));
    Buffer dy = on.input(type(), random_values(kCount, 3));
    on.run(ops::SwigluBackward{.rows = 1,
                               .columns = kCount,
                               .type = type(),
                               .gate = gate.data(),
                               .up = up.data(),
                               .in_stride = kCount,
                               .dy = dy.data()});
    on.run(ops::GeluBackward{.count = kCount, .type = type(), .x = up.data(), .dy = dy.data()});
    Bytes all = gate.bytes();
    const Bytes more = up.bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, ActivationTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
