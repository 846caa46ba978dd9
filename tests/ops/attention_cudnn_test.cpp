// cuDNN attention against fp64, its refusals, and its workspace caps.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/ops/attention.h"
#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::AttentionBackend;
using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionShape;

/// q, k and v as the model packs them: [q heads | k heads | v heads] a token.
struct Packed {
  AttentionShape shape;
  [[nodiscard]] Index tokens() const { return shape.batch * shape.sequence; }
  [[nodiscard]] Index heads() const { return shape.query_heads * shape.head_dim; }
  [[nodiscard]] Index kv() const { return shape.kv_heads * shape.head_dim; }
  [[nodiscard]] Index stride() const { return heads() + 2 * kv(); }
  /// Offset of element 0 of a head in packed rows.
  [[nodiscard]] Index q(Index token, Index head) const {
    return token * stride() + head * shape.head_dim;
  }
  [[nodiscard]] Index k(Index token, Index head) const {
    return q(token, 0) + heads() + kv_offset(head);
  }
  [[nodiscard]] Index v(Index token, Index head) const { return k(token, head) + kv(); }
  [[nodiscard]] Index o(Index token, Index head) const {
    return token * heads() + head * shape.head_dim;
  }
  [[nodiscard]] Index kv_offset(Index query_head) const {
    return query_head / (shape.query_heads / shape.kv_heads) * shape.head_dim;
  }
};

struct Reference {
  Values o, lse, dqkv;
};

double dot(const Values& a, Index at_a, const Values& b, Index at_b, Index count) {
  double sum = 0;
  for (Index i = 0; i < count; ++i)
    sum += a[static_cast<std::size_t>(at_a + i)] * b[static_cast<std::size_t>(at_b + i)];
  return sum;
}

void add(Values& to, Index at, double factor, const Values& from, Index from_at, Index count) {
  for (Index i = 0; i < count; ++i)
    to[static_cast<std::size_t>(at + i)] += factor * from[static_cast<std::size_t>(from_at + i)];
}

/// `o` and `lse` that the device computed are not used: everything follows from qkv and d_o.
Reference reference(const Packed& p, const Values& qkv, const Values& d_o) {
  const AttentionShape& s = p.shape;
  Reference out{Values(static_cast<std::size_t>(p.tokens() * p.heads())),
                Values(static_cast<std::size_t>(p.tokens() * s.query_heads)),
                Values(static_cast<std::size_t>(p.tokens() * p.stride()))};
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.query_heads; ++h)
      for (Index i = 0; i < s.sequence; ++i) {
        const Index token = b * s.sequence + i;
        const Index first = s.window > 0 ? std::max<Index>(0, i - s.window + 1) : 0;
        Values weights;
        double maximum = -std::numeric_limits<double>::infinity();
        for (Index j = first; j <= i; ++j) {
          const Index key = p.k(b * s.sequence + j, h);
          weights.push_back(s.scale * dot(qkv, p.q(token, h), qkv, key, s.head_dim));
          maximum = std::max(maximum, weights.back());
        }
        double sum = 0;
        for (double& w : weights) sum += w = std::exp(w - maximum);
        for (double& w : weights) w /= sum;
        out.lse[static_cast<std::size_t>((b * s.query_heads + h) * s.sequence + i)] =
            maximum + std::log(sum);
        double row = 0;  // sum of weight * d(weight)
        Values d_weights;
        for (Index j = first; j <= i; ++j) {
          const double w = weights[static_cast<std::size_t>(j - first)];
          const Index value = p.v(b * s.sequence + j, h);
          add(out.o, p.o(token, h), w, qkv, value, s.head_dim);
          add(out.dqkv, value, w, d_o, p.o(token, h), s.head_dim);
          d_weights.push_back(dot(d_o, p.o(token, h), qkv, value, s.head_dim));
          row += w * d_weights.back();
        }
        for (Index j = first; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j - first);
          const double d_score = s.scale * weights[at] * (d_weights[at] - row);
          const Index key = p.k(b * s.sequence + j, h);
          add(out.dqkv, p.q(token, h), d_score, qkv, key, s.head_dim);
          add(out.dqkv, key, d_score, qkv, p.q(token, h), s.head_dim);
        }
      }
  return out;
}

/// One version of cuDNN is refused for windows, and only for them.
bool is_version_fault(const AttentionShape& shape, const std::string& refusal) {
  return shape.window > 0 && refusal.find("known fault in sliding-window") != std::string::npos;
}

class CudnnAttentionTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (!IsSkipped() && type() != DType::bf16) GTEST_SKIP() << "bf16 only";
  }

  struct Result {
    Values o, dqkv;
    std::vector<float> lse;
    Bytes gradient_bits;
  };

  /// Forward and backward on `bench`.
  static Result run(OpBench& bench, const Packed& p, AttentionBackend backend, const Values& qkv_in,
                    const Values& d_o_in) {
    const AttentionShape& s = p.shape;
    const Buffer qkv = bench.input(DType::bf16, qkv_in);
    const Buffer d_o = bench.input(DType::bf16, d_o_in);
    const Buffer o = bench.output(DType::bf16, p.tokens() * p.heads());
    const Buffer lse = bench.output(DType::f32, p.tokens() * s.query_heads);
    const Buffer dqkv = bench.output(DType::bf16, p.tokens() * p.stride());
    const Index forward_bytes = ops::attention_forward_workspace(s, backend);
    const Index backward_bytes = ops::attention_backward_workspace(s, backend);
    const Buffer scratch = bench.scratch(std::max(forward_bytes, backward_bytes));
    auto* packed = qkv.as<std::uint16_t>();
    auto* gradient = dqkv.as<std::uint16_t>();
    AttentionForward forward;
    forward.shape = s;
    forward.backend = backend;
    forward.q = packed;
    forward.k = packed + p.heads();
    forward.v = packed + p.heads() + p.kv();
    forward.q_stride = forward.k_stride = forward.v_stride = p.stride();
    forward.o = o.data();
    forward.o_stride = p.heads();
    forward.lse = lse.as<float>();
    forward.workspace = workspace(scratch, forward_bytes);
    bench.run(forward);
    AttentionBackward backward;
    backward.shape = s;
    backward.backend = backend;
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.q_stride = backward.k_stride = backward.v_stride = p.stride();
    backward.o = o.data();
    backward.d_o = d_o.data();
    backward.o_stride = backward.d_o_stride = p.heads();
    backward.lse = lse.as<float>();
    backward.dq = gradient;
    backward.dk = gradient + p.heads();
    backward.dv = gradient + p.heads() + p.kv();
    backward.dq_stride = backward.dk_stride = backward.dv_stride = p.stride();
    backward.workspace = workspace(scratch, backward_bytes);
    bench.run(backward);
    return {o.values(), dqkv.values(), lse.raw<float>(), dqkv.bytes()};
  }

  void compare(const AttentionShape& shape, AttentionBackend backend) {
    const std::string refusal = bench().ops().attention_refusal(shape, backend);
    if (is_version_fault(shape, refusal)) return;
    ASSERT_EQ(refusal, "");
    const Packed p{shape};
    const Values qkv_raw = random_values(p.tokens() * p.stride(), 1);
    const Values d_o_raw = random_values(p.tokens() * p.heads(), 2);
    const Values qkv = bench().input(DType::bf16, qkv_raw).values();
    const Values d_o = bench().input(DType::bf16, d_o_raw).values();
    const Reference expected = reference(p, qkv, d_o);
    const Result result = run(bench(), p, backend, qkv, d_o);
    // Scores and weights pass through bf16 inside, so the bounds are a few roundings wide.
    EXPECT_LT(relative_error(result.o, expected.o), 8e-3);
    EXPECT_LT(relative_error(Values(result.lse.begin(), result.lse.end()), expected.lse), 1e-4);
    EXPECT_LT(relative_error(result.dqkv, expected.dqkv), 2e-2);
  }
};

AttentionShape shape_of(Index batch, Index sequence, Index query_heads, Index kv_heads,
                        Index head_dim, Index window = 0) {
  return {.batch = batch,
          .sequence = sequence,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim))),
          .type = DType::bf16};
}

TEST_P(CudnnAttentionTest, AgreesWithFp64) {
  for (const AttentionBackend backend :
       {AttentionBackend::cudnn, AttentionBackend::cudnn_deterministic})
    for (const AttentionShape& shape :
         {shape_of(1, 128, 2, 2, 64), shape_of(2, 256, 4, 2, 128), shape_of(3, 100, 6, 2, 64),
          shape_of(2, 192, 4, 1, 80), shape_of(1, 333, 7, 1, 128), shape_of(2, 256, 4, 2, 64, 1),
          shape_of(2, 256, 4, 2, 64, 37), shape_of(1, 300, 2, 1, 128, 128),
          shape_of(1, 256, 2, 2, 64, 256)}) {
      SCOPED_TRACE(testing::Message()
                   << "batch " << shape.batch << " sequence " << shape.sequence << " heads "
                   << shape.query_heads << "/" << shape.kv_heads << " size " << shape.head_dim
                   << " window " << shape.window << " backend " << static_cast<int>(backend));
      compare(shape, backend);
    }
}

TEST_P(CudnnAttentionTest, CutIntoGroupsAgreesWithTheOwnKernel) {
  // Long enough that all heads at once exceed the cap of one group.
  const Packed p{shape_of(2, 4096, 8, 4, 128)};
  const Values qkv = random_values(p.tokens() * p.stride(), 1);
  const Values d_o = random_values(p.tokens() * p.heads(), 2);
  const Result own = run(bench(), p, AttentionBackend::own, qkv, d_o);
  for (const AttentionBackend backend :
       {AttentionBackend::cudnn, AttentionBackend::cudnn_deterministic}) {
    ASSERT_EQ(bench().ops().attention_refusal(p.shape, backend), "");
    const Result result = run(bench(), p, backend, qkv, d_o);
    EXPECT_LT(relative_error(result.o, own.o), 1e-2);
    EXPECT_LT(relative_error(result.dqkv, own.dqkv), 2e-2);
  }
}

TEST_P(CudnnAttentionTest, TheDeterministicKindIs) {
  const Packed p{shape_of(2, 1000, 6, 2, 128)};
  const Values qkv = random_values(p.tokens() * p.stride(), 1);
  const Values d_o = random_values(p.tokens() * p.heads(), 2);
  const auto backend = AttentionBackend::cudnn_deterministic;
  const Bytes first = run(bench(), p, backend, qkv, d_o).gradient_bits;
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(first, run(bench(), p, backend, qkv, d_o).gradient_bits));
}

TEST_P(CudnnAttentionTest, WorkspaceCapsHoldForRealShapes) {
  // Builds plans only; a refusal's text has both sizes.
  for (const AttentionShape& shape :
       {shape_of(1, 4096, 28, 4, 128), shape_of(16, 4096, 28, 4, 128),
        shape_of(4, 16384, 28, 4, 128), shape_of(1, 131072, 28, 4, 128),
        shape_of(1, 524288, 28, 4, 128), shape_of(8, 4096, 14, 2, 64),
        shape_of(8, 2048, 12, 12, 64), shape_of(4, 4096, 32, 8, 128, 1024),
        shape_of(8, 1000, 32, 8, 80), shape_of(2, 4096, 16, 4, 256)}) {
    const std::string refusal = bench().ops().attention_refusal(shape, AttentionBackend::cudnn);
    if (is_version_fault(shape, refusal)) continue;
    EXPECT_EQ(refusal, "") << shape.batch << " x " << shape.sequence << ", heads "
                           << shape.query_heads << "/" << shape.kv_heads << " of "
                           << shape.head_dim;
  }
  for (const AttentionShape& shape :
       {shape_of(16, 4096, 28, 4, 128), shape_of(1, 16384, 28, 4, 128),
        shape_of(8, 2048, 12, 12, 64)})
    EXPECT_EQ(bench().ops().attention_refusal(shape, AttentionBackend::cudnn_deterministic), "");
}

INSTANTIATE_TEST_SUITE_P(Ops, CudnnAttentionTest, testing::ValuesIn(op_cases_on(DeviceKind::cuda)),
                         op_case_name);

class CudnnRefusalTest : public OpTest {};

TEST_P(CudnnRefusalTest, SaysWhy) {
  AttentionShape shape = shape_of(1, 128, 2, 2, 64);
  shape.type = DType::f32;
  const auto refusal = [&](const AttentionShape& s) {
    return bench().ops().attention_refusal(s, AttentionBackend::cudnn);
  };
  EXPECT_NE(refusal(shape), "");
  EXPECT_NE(refusal(shape_of(1, 128, 2, 2, 60)), "");
  EXPECT_NE(refusal(shape_of(1, 128, 2, 2, 264)), "");
  EXPECT_NE(refusal(shape_of(1, 128, 3, 2, 64)), "");
}

INSTANTIATE_TEST_SUITE_P(Ops, CudnnRefusalTest, testing::ValuesIn(op_cases_on(DeviceKind::cuda)),
                         op_case_name);

}  // namespace
}  // namespace megatrain::optest
