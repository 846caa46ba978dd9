#include <cmath>

#include "core/base/bfloat16.h"
#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::NormBackward;
using ops::NormForward;
using ops::NormKind;
using ops::RowMap;

constexpr float kEps = 1e-5F;

struct Shape {
  NormKind kind;
  Index rows, columns;
};

/// Statistics of one row in fp64.
struct Statistics {
  double mean = 0, rstd = 0;
};
Statistics statistics(NormKind kind, std::span<const double> x) {
  double mean = 0;
  if (kind == NormKind::layer)
    for (const double v : x) mean += v / static_cast<double>(x.size());
  double square = 0;
  for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
  return {mean, 1 / std::sqrt(square + static_cast<double>(kEps))};
}

std::span<const double> row_of(const Values& values, Index row, Index columns) {
  return std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                   static_cast<std::size_t>(columns));
}

Values reference_forward(const Shape& s, DType type, const Values& x, const Values& weight,
                         const Values& bias) {
  Values y;
  for (Index r = 0; r < s.rows; ++r) {
    const auto row = row_of(x, r, s.columns);
    const auto [mean, rstd] = statistics(s.kind, row);
    for (std::size_t c = 0; c < row.size(); ++c) {
      double xhat = (row[c] - mean) * rstd;
      if (s.kind == NormKind::rms && type == DType::bf16)
        xhat = static_cast<double>(to_float(to_bfloat16(static_cast<float>(xhat))));
      y.push_back(xhat * weight[c] + (bias.empty() ? 0.0 : bias[c]));
    }
  }
  return y;
}

struct Gradients {
  Values dx, dweight, dbias;
};
Gradients reference_backward(const Shape& s, const Values& x, const Values& weight,
                             const Values& dy, const Values& add) {
  Gradients g{.dx = {}, .dweight = Values(weight.size(), 0.0), .dbias = Values(weight.size(), 0.0)};
  const auto n = static_cast<double>(s.columns);
  for (Index r = 0; r < s.rows; ++r) {
    const auto row = row_of(x, r, s.columns);
    const auto dy_row = row_of(dy, r, s.columns);
    const auto [mean, rstd] = statistics(s.kind, row);
    double sum = 0;
    double product_sum = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double xhat = (row[c] - mean) * rstd;
      sum += dy_row[c] * weight[c];
      product_sum += dy_row[c] * weight[c] * xhat;
      g.dweight[c] += dy_row[c] * xhat;
      g.dbias[c] += dy_row[c];
    }
    if (s.kind == NormKind::rms) sum = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double xhat = (row[c] - mean) * rstd;
      const double dx = rstd * (dy_row[c] * weight[c] - sum / n - xhat * product_sum / n);
      g.dx.push_back(dx + (add.empty() ? 0.0 : add[g.dx.size()]));
    }
  }
  return g;
}

RowMap dense(Index columns) { return {.outer_stride = columns}; }

/// What a backward pass over dense rows reads and writes.
struct BackwardBuffers {
  Buffer x, weight, dy, rstd, mean, dx, dweight, dbias, scratch;

  [[nodiscard]] NormBackward op(const Shape& s, DType type) {
    const bool layer = s.kind == NormKind::layer;
    return {.kind = s.kind,
            .rows = s.rows,
            .columns = s.columns,
            .type = type,
            .x = x.data(),
            .x_rows = dense(s.columns),
            .weight = weight.data(),
            .rstd = rstd.as<float>(),
            .mean = layer ? mean.as<float>() : nullptr,
            .dy = dy.data(),
            .dy_rows = dense(s.columns),
            .dx = dx.data(),
            .dx_rows = dense(s.columns),
            .dweight = dweight.as<float>(),
            .dbias = layer ? dbias.as<float>() : nullptr,
            .workspace = workspace(scratch, ops::norm_backward_workspace(s.rows, s.columns))};
  }
};

class NormTest : public OpTest {
 protected:
  static std::vector<Shape> shapes() {
    std::vector<Shape> all;
    for (const NormKind kind : {NormKind::rms, NormKind::layer})
      for (const auto& [rows, columns] : {std::pair<Index, Index>{1, 1},
                                          {3, 7},
                                          {64, 16},
                                          {65, 33},
                                          {200, 129},
                                          {17, 1023},
                                          {130, 896},
                                          {150, 1600},
                                          {66, 3584},
                                          {5, 4096},
                                          {65, 5120},
                                          {3, 9000}})
        all.push_back({kind, rows, columns});
    return all;
  }
};

TEST_P(NormTest, forward) {
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(testing::Message() << s.rows << "x" << s.columns);
    const bool layer = s.kind == NormKind::layer;
    Buffer x = bench().input(type(), random_values(s.rows * s.columns, 1, 3));
    Buffer weight = bench().input(type(), random_values(s.columns, 2));
    Buffer bias = bench().input(type(), random_values(s.columns, 3));
    Buffer y = bench().output(type(), s.rows * s.columns);
    Buffer rstd = bench().output(DType::f32, s.rows);
    Buffer mean = bench().output(DType::f32, s.rows);
    NormForward op{.kind = s.kind,
                   .rows = s.rows,
                   .columns = s.columns,
                   .type = type(),
                   .x = x.data(),
                   .x_rows = dense(s.columns),
                   .weight = weight.data(),
                   .bias = layer ? bias.data() : nullptr,
                   .eps = kEps,
                   .y = y.data(),
                   .y_rows = dense(s.columns),
                   .rstd = rstd.as<float>(),
                   .mean = layer ? mean.as<float>() : nullptr};
    const Values inputs = x.values();
    const Values want =
        reference_forward(s, type(), inputs, weight.values(), layer ? bias.values() : Values());
    bench().run(op);
    EXPECT_LT(relative_error(y.values(), want), tolerance(type()));
    for (Index r = 0; r < s.rows; ++r) {
      const Statistics st = statistics(s.kind, row_of(inputs, r, s.columns));
      const auto at = static_cast<std::size_t>(r);
      EXPECT_NEAR(rstd.values()[at], st.rstd, 1e-5 * st.rstd);
      if (layer) {
        EXPECT_NEAR(mean.values()[at], st.mean, 1e-5);
      }
    }
    // In place, and without a bias.
    const Bytes aside = y.bytes();
    op.y = x.data();
    bench().run(op);
    EXPECT_TRUE(same_bits(x.bytes(), aside));
    if (layer) {
      op.x = y.data();
      op.y = y.data();
      op.bias = nullptr;
      const Values no_bias = reference_forward(s, type(), y.values(), weight.values(), {});
      bench().run(op);
      EXPECT_LT(relative_error(y.values(), no_bias), tolerance(type()));
    }
  }
}

TEST_P(NormTest, backward) {
  for (const Shape& s : shapes()) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.columns << " " << accumulate);
      const bool layer = s.kind == NormKind::layer;
      const Index count = s.rows * s.columns;
      Buffer x = bench().input(type(), random_values(count, 1, 3));
      Buffer add = bench().input(type(), random_values(count, 5));
      std::vector<float> rstd;
      std::vector<float> mean;
      const Values inputs = x.values();
      for (Index r = 0; r < s.rows; ++r) {
        const Statistics st = statistics(s.kind, row_of(inputs, r, s.columns));
        rstd.push_back(static_cast<float>(st.rstd));
        mean.push_back(static_cast<float>(st.mean));
      }
      const Values before = random_values(s.columns, 6);
      const auto sum = [&] {
        return accumulate ? bench().input(DType::f32, before)
                          : bench().output(DType::f32, s.columns);
      };
      BackwardBuffers on{
          .x = std::move(x),
          .weight = bench().input(type(), random_values(s.columns, 2)),
          .dy = bench().input(type(), random_values(count, 4)),
          .rstd = bench().input_raw(rstd),
          .mean = bench().input_raw(mean),
          .dx = bench().output(type(), count),
          .dweight = sum(),
          .dbias = sum(),
          .scratch = bench().scratch(ops::norm_backward_workspace(s.rows, s.columns))};
      NormBackward op = on.op(s, type());
      op.accumulate = accumulate;
      Gradients want = reference_backward(s, inputs, on.weight.values(), on.dy.values(), {});
      if (accumulate)
        for (std::size_t c = 0; c < before.size(); ++c) {
          want.dweight[c] += before[c];
          want.dbias[c] += before[c];
        }
      bench().run(op);
      // One element has no gradient: what is left is rounding, so the size is that of dy.
      const Values zeros(static_cast<std::size_t>(count), 0.0);
      if (s.columns == 1)
        EXPECT_LT(relative_error(on.dx.values(), zeros), layer ? 1e-4 : 1e-3);
      else
        EXPECT_LT(relative_error(on.dx.values(), want.dx), 2 * tolerance(type()));
      EXPECT_LT(relative_error(on.dweight.values(), want.dweight), 2 * tolerance(DType::f32));
      if (layer) {
        EXPECT_LT(relative_error(on.dbias.values(), want.dbias), tolerance(DType::f32));
      }
      (void)on.scratch.bytes();  // checks the guards

      // dx over `add`, the residual gradient, and over dy.
      const Bytes without_add = on.dx.bytes();
      if (s.columns == 1) continue;
      op.add = add.data();
      op.dx = add.data();
      const Gradients added =
          reference_backward(s, inputs, on.weight.values(), on.dy.values(), add.values());
      bench().run(op);
      EXPECT_LT(relative_error(add.values(), added.dx), 2 * tolerance(type()));
      op.add = nullptr;
      op.dx = on.dy.data();
      bench().run(op);
      EXPECT_TRUE(same_bits(on.dy.bytes(), without_add));
    }
  }
}

/// Heads inside packed rows: only they change, and they change as a dense copy of them would.
TEST_P(NormTest, strided_heads) {
  constexpr Index kTokens = 9;
  constexpr Index kHeads = 3;
  constexpr Index kDim = 20;
  constexpr Index kRow = 100;  // token pitch; the heads begin at element 10
  const Shape s{NormKind::rms, kTokens * kHeads, kDim};
  const RowMap map{.inner = kHeads, .outer_stride = kRow, .inner_stride = kDim};
  Buffer packed = bench().input(type(), random_values(kTokens * kRow, 1));
  Buffer weight = bench().input(type(), random_values(kDim, 2));
  Buffer rstd = bench().output(DType::f32, s.rows);
  const Values before = packed.values();
  Values heads;
  for (Index r = 0; r < s.rows; ++r)
    for (Index c = 0; c < kDim; ++c)
      heads.push_back(before[static_cast<std::size_t>(10 + map.offset(r) + c)]);
  void* const first = packed.as<std::byte>() + 10 * size_of(type());
  bench().run(NormForward{.kind = s.kind,
                          .rows = s.rows,
                          .columns = kDim,
                          .type = type(),
                          .x = first,
                          .x_rows = map,
                          .weight = weight.data(),
                          .bias = nullptr,
                          .eps = kEps,
                          .y = first,
                          .y_rows = map,
                          .rstd = rstd.as<float>(),
                          .mean = nullptr});
  const Values want = reference_forward(s, type(), heads, weight.values(), {});
  Values after = packed.values();
  Values got;
  for (Index r = 0; r < s.rows; ++r)
    for (Index c = 0; c < kDim; ++c) {
      const auto at = static_cast<std::size_t>(10 + map.offset(r) + c);
      got.push_back(after[at]);
      after[at] = before[at];
    }
  EXPECT_LT(relative_error(got, want), tolerance(type()));
  EXPECT_EQ(after, before);
}

TEST_P(NormTest, same_bits_for_every_thread_count) {
  const Shape s{NormKind::layer, 777, 130};
  expect_reproducible([&](OpBench& on) {
    const Index count = s.rows * s.columns;
    BackwardBuffers buffers{.x = on.input(type(), random_values(count, 1)),
                            .weight = on.input(type(), random_values(s.columns, 2)),
                            .dy = on.input(type(), random_values(count, 3)),
                            .rstd = on.input(DType::f32, random_values(s.rows, 4)),
                            .mean = on.input(DType::f32, random_values(s.rows, 4)),
                            .dx = on.output(type(), count),
                            .dweight = on.output(DType::f32, s.columns),
                            .dbias = on.output(DType::f32, s.columns),
                            .scratch = on.scratch(ops::norm_backward_workspace(s.rows, s.columns))};
    on.run(buffers.op(s, type()));
    Bytes all = buffers.dx.bytes();
    for (const Buffer* buffer : {&buffers.dweight, &buffers.dbias}) {
      const Bytes more = buffer->bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
}

/// More rows than 1024 groups of 64 hold: groups grow, the sum stays right and in its scratch.
TEST_P(NormTest, many_rows) {
  const Shape s{NormKind::layer, 70001, 5};
  const Index count = s.rows * s.columns;
  const auto rows = static_cast<std::size_t>(s.rows);
  BackwardBuffers on{.x = bench().input(type(), random_values(count, 1)),
                     .weight = bench().input(type(), random_values(s.columns, 2)),
                     .dy = bench().input(type(), random_values(count, 3)),
                     .rstd = bench().input_raw(std::vector<float>(rows, 1.5F)),
                     .mean = bench().input_raw(std::vector<float>(rows, 0.25F)),
                     .dx = bench().output(type(), count),
                     .dweight = bench().output(DType::f32, s.columns),
                     .dbias = bench().output(DType::f32, s.columns),
                     .scratch = bench().scratch(ops::norm_backward_workspace(s.rows, s.columns))};
  bench().run(on.op(s, type()));
  Values want_dweight(5, 0.0);
  Values want_dbias(5, 0.0);
  const Values inputs = on.x.values();
  const Values gradients = on.dy.values();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    want_dweight[i % 5] += gradients[i] * (inputs[i] - 0.25) * 1.5;
    want_dbias[i % 5] += gradients[i];
  }
  EXPECT_LT(relative_error(on.dweight.values(), want_dweight), 5e-6);
  EXPECT_LT(relative_error(on.dbias.values(), want_dbias), 5e-6);
  (void)on.scratch.bytes();
}

INSTANTIATE_TEST_SUITE_P(Ops, NormTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
