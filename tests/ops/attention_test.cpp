#include <cmath>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionShape;

/// Tensors of one call, each [batch * sequence, heads * head_dim].
struct Tensors {
  Values q, k, v, o, lse, d_o, dq, dk, dv;
};

Tensors random_tensors(const AttentionShape& s) {
  const Index rows = s.batch * s.sequence;
  return {.q = random_values(rows * s.query_heads * s.head_dim, 1, 2),
          .k = random_values(rows * s.kv_heads * s.head_dim, 2, 2),
          .v = random_values(rows * s.kv_heads * s.head_dim, 3),
          .o = {},
          .lse = {},
          .d_o = random_values(rows * s.query_heads * s.head_dim, 4),
          .dq = {},
          .dk = {},
          .dv = {}};
}

std::size_t at(const AttentionShape& s, Index batch, Index token, Index heads, Index head) {
  return static_cast<std::size_t>(((batch * s.sequence + token) * heads + head) * s.head_dim);
}

/// Row i of softmax(scale q k^T + mask) of one head, and its log-sum-exp.
std::vector<double> probabilities(const AttentionShape& s, const Tensors& t, Index b, Index h,
                                  Index i, double& lse) {
  const Index kv = h / (s.query_heads / s.kv_heads);
  std::vector<double> p(static_cast<std::size_t>(s.sequence), 0.0);
  double sum = 0;
  for (Index j = 0; j <= i; ++j) {
    if (s.window > 0 && j <= i - s.window) continue;
    double score = 0;
    for (Index c = 0; c < s.head_dim; ++c)
      score += t.q[at(s, b, i, s.query_heads, h) + static_cast<std::size_t>(c)] *
               t.k[at(s, b, j, s.kv_heads, kv) + static_cast<std::size_t>(c)];
    sum += p[static_cast<std::size_t>(j)] = std::exp(static_cast<double>(s.scale) * score);
  }
  for (double& value : p) value /= sum;
  lse = std::log(sum);
  return p;
}

/// Fills o and lse, then, with `backward`, the gradients; fp64, one score at a time.
void reference(const AttentionShape& s, Tensors& t, bool backward) {
  t.o.assign(t.q.size(), 0);
  t.dq.assign(t.q.size(), 0);
  t.dk.assign(t.k.size(), 0);
  t.dv.assign(t.k.size(), 0);
  t.lse.assign(static_cast<std::size_t>(s.batch * s.query_heads * s.sequence), 0);
  const auto dim = static_cast<std::size_t>(s.head_dim);
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.query_heads; ++h)
      for (Index i = 0; i < s.sequence; ++i) {
        const Index kv = h / (s.query_heads / s.kv_heads);
        const std::size_t q = at(s, b, i, s.query_heads, h);
        const auto p = probabilities(
            s, t, b, h, i,
            t.lse[static_cast<std::size_t>((b * s.query_heads + h) * s.sequence + i)]);
        std::vector<double> dp(p.size(), 0.0);
        double sum = 0;
        for (Index j = 0; j <= i; ++j) {
          const std::size_t k = at(s, b, j, s.kv_heads, kv);
          const auto jj = static_cast<std::size_t>(j);
          for (std::size_t c = 0; c < dim; ++c) t.o[q + c] += p[jj] * t.v[k + c];
          if (!backward) continue;
          for (std::size_t c = 0; c < dim; ++c) {
            dp[jj] += t.d_o[q + c] * t.v[k + c];
            t.dv[k + c] += p[jj] * t.d_o[q + c];
          }
          sum += p[jj] * dp[jj];
        }
        for (Index j = 0; j <= i && backward; ++j) {
          const std::size_t k = at(s, b, j, s.kv_heads, kv);
          const auto jj = static_cast<std::size_t>(j);
          const double ds = static_cast<double>(s.scale) * p[jj] * (dp[jj] - sum);
          for (std::size_t c = 0; c < dim; ++c) {
            t.dq[q + c] += ds * t.k[k + c];
            t.dk[k + c] += ds * t.q[q + c];
          }
        }
      }
}

/// q, k and v packed in one row of a token, as the fused projection writes them.
struct Packed {
  Index q_width, kv_width, row;
  explicit Packed(const AttentionShape& s)
      : q_width(s.query_heads * s.head_dim),
        kv_width(s.kv_heads * s.head_dim),
        row(q_width + 2 * kv_width) {}

  [[nodiscard]] Values join(const Values& q, const Values& k, const Values& v) const {
    Values out;
    for (std::size_t t = 0; t < q.size() / static_cast<std::size_t>(q_width); ++t)
      for (const auto& [from, width] :
           {std::pair{&q, q_width}, std::pair{&k, kv_width}, std::pair{&v, kv_width}}) {
        const auto begin = from->begin() + static_cast<Index>(t) * width;
        out.insert(out.end(), begin, begin + width);
      }
    return out;
  }
  [[nodiscard]] Values part(const Values& packed, Index offset, Index width) const {
    Values out;
    for (auto at = packed.begin(); at != packed.end(); at += row)
      out.insert(out.end(), at + offset, at + offset + width);
    return out;
  }
  [[nodiscard]] Values q(const Values& packed) const { return part(packed, 0, q_width); }
  [[nodiscard]] Values k(const Values& packed) const { return part(packed, q_width, kv_width); }
  [[nodiscard]] Values v(const Values& packed) const {
    return part(packed, q_width + kv_width, kv_width);
  }
};

struct Result {
  Tensors tensors;  ///< inputs as the device holds them, outputs as it computed them
  Bytes bits;       ///< of all outputs
};

/// Runs forward and backward with our own kernel on packed q, k, v.
Result run(OpBench& bench, AttentionShape shape, const Tensors& in, DType type) {
  shape.type = type;
  const Packed packed(shape);
  const Index rows = shape.batch * shape.sequence;
  Buffer qkv = bench.input(type, packed.join(in.q, in.k, in.v));
  Buffer d_o = bench.input(type, in.d_o);
  Buffer o = bench.output(type, rows * packed.q_width);
  Buffer lse = bench.output(DType::f32, shape.batch * shape.query_heads * shape.sequence);
  Buffer d_qkv = bench.output(type, rows * packed.row);
  const auto backend = ops::AttentionBackend::own;
  const Index forward_bytes = ops::attention_forward_workspace(shape, backend);
  const Index backward_bytes = ops::attention_backward_workspace(shape, backend);
  Buffer forward_scratch = bench.scratch(forward_bytes);
  Buffer backward_scratch = bench.scratch(backward_bytes);
  const auto offset = [&](const Buffer& buffer, Index elements) {
    return static_cast<void*>(buffer.as<std::byte>() + elements * size_of(type));
  };
  bench.run(AttentionForward{.shape = shape,
                             .q = qkv.data(),
                             .q_stride = packed.row,
                             .k = offset(qkv, packed.q_width),
                             .k_stride = packed.row,
                             .v = offset(qkv, packed.q_width + packed.kv_width),
                             .v_stride = packed.row,
                             .o = o.data(),
                             .o_stride = packed.q_width,
                             .lse = lse.as<float>(),
                             .workspace = workspace(forward_scratch, forward_bytes)});
  bench.run(AttentionBackward{.shape = shape,
                              .q = qkv.data(),
                              .q_stride = packed.row,
                              .k = offset(qkv, packed.q_width),
                              .k_stride = packed.row,
                              .v = offset(qkv, packed.q_width + packed.kv_width),
                              .v_stride = packed.row,
                              .o = o.data(),
                              .o_stride = packed.q_width,
                              .d_o = d_o.data(),
                              .d_o_stride = packed.q_width,
                              .lse = lse.as<float>(),
                              .dq = d_qkv.data(),
                              .dq_stride = packed.row,
                              .dk = offset(d_qkv, packed.q_width),
                              .dk_stride = packed.row,
                              .dv = offset(d_qkv, packed.q_width + packed.kv_width),
                              .dv_stride = packed.row,
                              .workspace = workspace(backward_scratch, backward_bytes)});
  (void)forward_scratch.bytes();  // checks the guards
  (void)backward_scratch.bytes();
  const Values inputs = qkv.values();
  const Values gradients = d_qkv.values();
  Result result{.tensors = {.q = packed.q(inputs),
                            .k = packed.k(inputs),
                            .v = packed.v(inputs),
                            .o = o.values(),
                            .lse = lse.values(),
                            .d_o = d_o.values(),
                            .dq = packed.q(gradients),
                            .dk = packed.k(gradients),
                            .dv = packed.v(gradients)},
                .bits = o.bytes()};
  for (const Buffer* buffer : {&lse, &d_qkv}) {
    const Bytes more = buffer->bytes();
    result.bits.insert(result.bits.end(), more.begin(), more.end());
  }
  return result;
}

constexpr AttentionShape shape_of(Index batch, Index sequence, Index query_heads, Index kv_heads,
                                  Index head_dim, Index window) {
  return {.batch = batch,
          .sequence = sequence,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .scale = 0.3F};
}

class AttentionTest : public OpTest {
 protected:
  void expect_right(const AttentionShape& shape) {
    SCOPED_TRACE(testing::Message()
                 << shape.batch << "x" << shape.sequence << ", heads " << shape.query_heads << "/"
                 << shape.kv_heads << "x" << shape.head_dim << ", window " << shape.window);
    const Result got = run(bench(), shape, random_tensors(shape), type());
    Tensors want = got.tensors;
    reference(shape, want, true);
    // The backward pass reads o and lse as they were stored, so its bound is a little wider.
    const double bound = tolerance(type());
    EXPECT_LT(relative_error(got.tensors.o, want.o), bound);
    EXPECT_LT(relative_error(got.tensors.lse, want.lse), tolerance(DType::f32));
    if (shape.window == 1) {
      // One key: its probability is 1 whatever its score, so the true gradient is zero.
      EXPECT_LT(relative_error(got.tensors.dq, Values(want.dq.size(), 0.0)), 20 * bound);
      EXPECT_LT(relative_error(got.tensors.dk, Values(want.dk.size(), 0.0)), 20 * bound);
    } else {
      EXPECT_LT(relative_error(got.tensors.dq, want.dq), 2 * bound);
      EXPECT_LT(relative_error(got.tensors.dk, want.dk), 2 * bound);
    }
    EXPECT_LT(relative_error(got.tensors.dv, want.dv), 2 * bound);
  }
};

TEST_P(AttentionTest, odd_shapes) {
  expect_right(shape_of(1, 1, 1, 1, 8, 0));
  expect_right(shape_of(2, 17, 3, 1, 7, 0));
  expect_right(shape_of(2, 64, 2, 2, 32, 0));
  expect_right(shape_of(1, 65, 4, 2, 64, 0));
  expect_right(shape_of(1, 200, 6, 2, 80, 0));
  expect_right(shape_of(1, 130, 1, 1, 128, 0));
  expect_right(shape_of(1, 70, 2, 1, 256, 0));
}

TEST_P(AttentionTest, windows) {
  for (const Index window : {1, 2, 31, 63, 64, 65, 100, 128, 199, 200, 201, 1000})
    expect_right(shape_of(1, 200, 2, 1, 24, window));
}

TEST_P(AttentionTest, same_bits_for_every_thread_count) {
  for (const Index window : {0, 50}) {
    const AttentionShape shape = shape_of(2, 150, 4, 2, 40, window);
    expect_reproducible(
        [&](OpBench& on) { return run(on, shape, random_tensors(shape), type()).bits; });
  }
}

/// The reference itself: its gradients are the slopes of sum(o * d_o).
TEST(AttentionReferenceTest, gradients_are_finite_differences) {
  const AttentionShape shape = shape_of(2, 9, 4, 2, 5, 4);
  Tensors t = random_tensors(shape);
  reference(shape, t, true);
  const auto objective = [&](const Tensors& inputs) {
    Tensors copy = inputs;
    reference(shape, copy, false);
    double sum = 0;
    for (std::size_t i = 0; i < copy.o.size(); ++i) sum += copy.o[i] * copy.d_o[i];
    return sum;
  };
  for (const auto& [input, gradient] :
       {std::pair{&Tensors::q, &Tensors::dq}, std::pair{&Tensors::k, &Tensors::dk},
        std::pair{&Tensors::v, &Tensors::dv}}) {
    Values slopes;
    for (std::size_t i = 0; i < (t.*input).size(); ++i) {
      constexpr double kStep = 1e-5;
      Tensors moved = t;
      (moved.*input)[i] += kStep;
      const double above = objective(moved);
      (moved.*input)[i] -= 2 * kStep;
      slopes.push_back((above - objective(moved)) / (2 * kStep));
    }
    EXPECT_LT(relative_error(slopes, t.*gradient), 1e-8);
  }
}

/// Extreme scores: a softmax that is one-hot, and rows whose scores are far apart.
TEST_P(AttentionTest, large_scores) {
  const AttentionShape shape = shape_of(1, 100, 1, 1, 16, 0);
  Tensors in = random_tensors(shape);
  for (double& value : in.q) value *= 40;
  const Result got = run(bench(), shape, in, type());
  Tensors want = got.tensors;
  reference(shape, want, true);
  EXPECT_LT(relative_error(got.tensors.o, want.o), 20 * tolerance(type()));
  EXPECT_LT(relative_error(got.tensors.dv, want.dv), 20 * tolerance(type()));
}

TEST(AttentionWorkspaceTest, is_stated_by_shape) {
  AttentionShape shape = shape_of(1, 4096, 28, 4, 128, 0);
  using ops::AttentionBackend;
  const auto backward = [&](AttentionBackend backend) {
    return ops::attention_backward_workspace(shape, backend);
  };
  EXPECT_EQ(ops::attention_forward_workspace(shape, AttentionBackend::own), 0);
  EXPECT_EQ(backward(AttentionBackend::own), Index{4} * 28 * 4096);
  // One group's fp32 dq, dk and dv, not those of all heads.
  const Index group = Index{3} * 4 * 7 * 4096 * 128;
  EXPECT_GE(backward(AttentionBackend::cudnn), group);
  EXPECT_LE(backward(AttentionBackend::cudnn), 2 * group);
  EXPECT_GE(backward(AttentionBackend::cudnn_deterministic), group + Index{2} * 7 * 4096 * 4096);
  // Beyond 2^31 bytes, and beyond 2^63: a number, then a refusal.
  shape.sequence = Index{1} << 20;
  EXPECT_GT(backward(AttentionBackend::cudnn_deterministic), Index{1} << 43);
  shape.sequence = Index{1} << 40;
  EXPECT_THROW(backward(AttentionBackend::cudnn_deterministic), UserError);
}

TEST_P(AttentionTest, refuses_heads_that_do_not_divide) {
  if (GetParam().device != DeviceKind::cpu) GTEST_SKIP() << "the CPU's check";
  AttentionForward op;
  op.shape = shape_of(1, 8, 3, 2, 8, 0);
  op.shape.type = type();
  EXPECT_THROW(bench().run(op), LogicError);
}

INSTANTIATE_TEST_SUITE_P(Ops, AttentionTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
