/// The tensor-core attention kernels against the plain fp32 ones of the same GPU, which
/// attention_test.cpp holds to an fp64 reference: so shapes can be large, and many.

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::AttentionBackend;
using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionShape;

struct Result {
  Values o, lse, dq, dk, dv;
  Bytes bits;  ///< of all of them
};

/// Elements between a head's last row and the next token. An odd count leaves rows unaligned, which
/// tensor-core kernels do not take.
struct Padding {
  Index elements = 0;
};

/// Runs both passes on inputs that are bf16 numbers, whatever `shape.type` is.
Result run(OpBench& bench, const AttentionShape& shape, Padding padding) {
  const Index tokens = shape.batch * shape.sequence;
  const Index q_stride = shape.query_heads * shape.head_dim + padding.elements;
  const Index kv_stride = shape.kv_heads * shape.head_dim + padding.elements;
  const auto input = [&](Index stride, std::uint64_t seed, double scale) {
    Buffer rounded = bench.input(DType::bf16, random_values(tokens * stride, seed, scale));
    return bench.input(shape.type, rounded.values());
  };
  const auto zeros = [&](Index stride) {
    return bench.input(shape.type, Values(static_cast<std::size_t>(tokens * stride), 0.0));
  };
  Buffer q = input(q_stride, 1, 2), k = input(kv_stride, 2, 2), v = input(kv_stride, 3, 1);
  Buffer d_o = input(q_stride, 4, 1);
  // Zeros, not poison: padding must stay untouched and be comparable.
  Buffer o = zeros(q_stride), dq = zeros(q_stride), dk = zeros(kv_stride), dv = zeros(kv_stride);
  Buffer lse = bench.output(DType::f32, shape.batch * shape.query_heads * shape.sequence);
  const Index bytes = ops::attention_backward_workspace(shape, AttentionBackend::own);
  Buffer scratch = bench.scratch(bytes);
  bench.run(AttentionForward{.shape = shape,
                             .q = q.data(),
                             .q_stride = q_stride,
                             .k = k.data(),
                             .k_stride = kv_stride,
                             .v = v.data(),
                             .v_stride = kv_stride,
                             .o = o.data(),
                             .o_stride = q_stride,
                             .lse = lse.as<float>(),
                             .workspace = {}});
  bench.run(AttentionBackward{.shape = shape,
                              .q = q.data(),
                              .q_stride = q_stride,
                              .k = k.data(),
                              .k_stride = kv_stride,
                              .v = v.data(),
                              .v_stride = kv_stride,
                              .o = o.data(),
                              .o_stride = q_stride,
                              .d_o = d_o.data(),
                              .d_o_stride = q_stride,
                              .lse = lse.as<float>(),
                              .dq = dq.data(),
                              .dq_stride = q_stride,
                              .dk = dk.data(),
                              .dk_stride = kv_stride,
                              .dv = dv.data(),
                              .dv_stride = kv_stride,
                              .workspace = workspace(scratch, bytes)});
  (void)scratch.bytes();  // checks the guards
  Result result{.o = o.values(),
                .lse = lse.values(),
                .dq = dq.values(),
                .dk = dk.values(),
                .dv = dv.values(),
                .bits = {}};
  for (const Buffer* buffer : {&o, &lse, &dq, &dk, &dv}) {
    const Bytes more = buffer->bytes();
    result.bits.insert(result.bits.end(), more.begin(), more.end());
  }
  return result;
}

constexpr AttentionShape shape_of(Index batch, Index sequence, Index query_heads, Index kv_heads,
                                  Index head_dim, Index window = 0) {
  return {.batch = batch,
          .sequence = sequence,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .scale = 0.1F,
          .type = DType::bf16};
}

class AttentionCudaTest : public OpTest {
 protected:
  /// The gradient of a score is a difference of two sums, each rounded to bf16: where few keys are
  /// seen it loses digits, and one key leaves nothing of it. So `sequence` is at least 2.
  void expect_agreement(const AttentionShape& shape, Padding padding = {}) {
    SCOPED_TRACE(testing::Message()
                 << shape.batch << "x" << shape.sequence << ", heads " << shape.query_heads << "/"
                 << shape.kv_heads << "x" << shape.head_dim << ", window " << shape.window
                 << ", padding " << padding.elements);
    AttentionShape exact = shape;
    exact.type = DType::f32;
    const Result want = run(bench(), exact, padding);
    const Result got = run(bench(), shape, padding);
    const double bound = tolerance(DType::bf16);
    EXPECT_LT(relative_error(got.o, want.o), bound);
    EXPECT_LT(relative_error(got.lse, want.lse), tolerance(DType::f32));
    const double score_bound = (shape.sequence < 16 ? 8 : 2) * bound;
    EXPECT_LT(relative_error(got.dq, want.dq), score_bound);
    EXPECT_LT(relative_error(got.dk, want.dk), score_bound);
    EXPECT_LT(relative_error(got.dv, want.dv), 2 * bound);
  }
};

TEST_P(AttentionCudaTest, head_sizes_and_sequences) {
  for (const Index head_dim : {8, 16, 40, 64, 80, 96, 112, 128, 192, 256})
    for (const Index sequence : {2, 17, 128, 333, 1024})
      expect_agreement(shape_of(2, sequence, 4, 2, head_dim));
}

TEST_P(AttentionCudaTest, shared_heads) {
  for (const Index kv_heads : {1, 2, 3, 4, 6, 12})
    for (const Index head_dim : {64, 128})
      expect_agreement(shape_of(3, 200, 12, kv_heads, head_dim));
}

TEST_P(AttentionCudaTest, windows) {
  for (const Index window : {2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 400, 449, 450, 451, 9999})
    for (const Index head_dim : {64, 96, 128})
      expect_agreement(shape_of(1, 450, 2, 1, head_dim, window));
}

TEST_P(AttentionCudaTest, strides) {
  for (const Index padding : {1, 2, 4, 8, 24})
    for (const Index head_dim : {64, 128})
      expect_agreement(shape_of(2, 150, 4, 2, head_dim), Padding{padding});
}

TEST_P(AttentionCudaTest, same_bits) {
  for (const Index head_dim : {64, 96, 128}) {
    const AttentionShape shape = shape_of(2, 700, 6, 2, head_dim, 300);
    expect_reproducible([&](OpBench& on) { return run(on, shape, {}).bits; });
  }
}

/// The bits of a query do not depend on what comes after it, nor on other samples of the batch.
TEST_P(AttentionCudaTest, shorter_and_smaller_calls_agree) {
  const AttentionShape one = shape_of(1, 300, 2, 1, 64);
  AttentionShape two = one;
  two.batch = 2;
  const Result small = run(bench(), one, {}), large = run(bench(), two, {});
  for (std::size_t i = 0; i < small.o.size(); ++i) ASSERT_EQ(small.o[i], large.o[i]) << i;
  for (std::size_t i = 0; i < small.dq.size(); ++i) ASSERT_EQ(small.dq[i], large.dq[i]) << i;
  for (std::size_t i = 0; i < small.dk.size(); ++i) ASSERT_EQ(small.dk[i], large.dk[i]) << i;
}

std::vector<OpCase> tensor_core_cases() {
  std::vector<OpCase> cases = op_cases_on(DeviceKind::cuda);
  std::erase_if(cases, [](const OpCase& one) { return one.type != DType::bf16; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, AttentionCudaTest, testing::ValuesIn(tensor_core_cases()),
                         op_case_name);

}  // namespace
}  // namespace megatrain::optest
