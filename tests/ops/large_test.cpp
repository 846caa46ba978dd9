#include <algorithm>

#include "tests/ops/op_test.h"

// Offsets beyond 2^31 elements. Only what a case needs is written, so that on the CPU the rest of
// an allocation never becomes real memory.

namespace megatrain::optest {
namespace {

constexpr Index kFar = (Index{1} << 30) + 12345;  // two of these are beyond 2^31
constexpr Index kRows = 3;

/// Device memory with unwritten contents, read and written in places.
class LargeBuffer {
 public:
  LargeBuffer(OpBench& bench, DType type, Index count)
      : bench_(bench), type_(type), memory_(bench.device().allocate(count * size_of(type))) {}
  [[nodiscard]] void* at(Index element) const { return memory_->data() + element * size_of(type_); }
  [[nodiscard]] float* as_float() const { return static_cast<float*>(at(0)); }
  void write(Index element, const Values& values) {
    Buffer staged = bench_.input(type_, values);
    const auto bytes = static_cast<Index>(values.size()) * size_of(type_);
    bench_.stream().copy(at(element), staged.data(), bytes);
    bench_.stream().synchronize();
  }
  [[nodiscard]] Values read(Index element, Index count) const {
    Buffer staged = bench_.output(type_, count);
    bench_.stream().copy(staged.data(), at(element), count * size_of(type_));
    bench_.stream().synchronize();
    return staged.values();
  }

 private:
  OpBench& bench_;
  DType type_;
  std::unique_ptr<DeviceMemory> memory_;
};

/// Runs what small shapes run elsewhere, with rows kFar elements apart. 12 GiB of a GPU, and on
/// the CPU 12 GiB of address space, of which the cases make at most 6 GiB real.
class LargeTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    const bool cpu = GetParam().device == DeviceKind::cpu;
    if (bench().device().info().total_memory < (Index{14} << 30) ||
        (cpu && lacks_memory(Index{8} << 30)))
      GTEST_SKIP() << "needs 14 GiB of device memory; on the CPU, 8 GiB of it free";
  }

  /// Runs `op` with the pitch kFar and with `width`; the rows must come out the same, on the CPU
  /// to the bit (a GPU's kernels sum in the order of the accesses that the pitch allows). `width`
  /// elements of each row are input and output.
  void expect_same_rows(Index width, const std::function<void(void* rows, Index pitch)>& op) {
    const Values in = random_values(kRows * width, 1, 3);
    Buffer close = bench().input(type(), in);
    LargeBuffer apart(bench(), type(), (kRows - 1) * kFar + width);
    for (Index r = 0; r < kRows; ++r)
      apart.write(r * kFar, {in.begin() + r * width, in.begin() + (r + 1) * width});
    op(close.data(), width);
    op(apart.at(0), kFar);
    const Values want = close.values();
    for (Index r = 0; r < kRows; ++r) {
      const Values got = apart.read(r * kFar, width);
      const Values row(want.begin() + r * width, want.begin() + (r + 1) * width);
      if (GetParam().device == DeviceKind::cpu)
        EXPECT_EQ(got, row) << "row " << r;
      else
        EXPECT_LT(relative_error(got, row), tolerance(type())) << "row " << r;
    }
  }
};

TEST_P(LargeTest, cross_entropy_pitch) {
  constexpr Index kVocabulary = 1000;
  Buffer targets = bench().input_raw(std::vector<std::int32_t>{5, 0, 999});
  Buffer losses = bench().output(DType::f32, kRows);
  std::vector<Values> seen;
  expect_same_rows(kVocabulary, [&](void* logits, Index stride) {
    bench().run(ops::CrossEntropy{.tokens = kRows,
                                  .vocabulary = kVocabulary,
                                  .stride = stride,
                                  .type = type(),
                                  .logits = logits,
                                  .targets = targets.as<std::int32_t>(),
                                  .losses = losses.as<float>()});
    seen.push_back(losses.values());
  });
  EXPECT_EQ(seen.at(0), seen.at(1));
}

TEST_P(LargeTest, norm_pitch) {
  constexpr Index kColumns = 100;
  Buffer weight = bench().input(type(), random_values(kColumns, 2));
  Buffer rstd = bench().output(DType::f32, kRows);
  Buffer dweight = bench().output(DType::f32, kColumns);
  const Index bytes = ops::norm_backward_workspace(kRows, kColumns);
  Buffer scratch = bench().scratch(bytes);
  expect_same_rows(kColumns, [&](void* x, Index stride) {
    const ops::RowMap map{.outer_stride = stride};
    bench().run(ops::NormForward{.rows = kRows,
                                 .columns = kColumns,
                                 .type = type(),
                                 .x = x,
                                 .x_rows = map,
                                 .weight = weight.data(),
                                 .bias = nullptr,
                                 .eps = 1e-5F,
                                 .y = x,
                                 .y_rows = map,
                                 .rstd = rstd.as<float>(),
                                 .mean = nullptr});
    bench().run(ops::NormBackward{.rows = kRows,
                                  .columns = kColumns,
                                  .type = type(),
                                  .x = x,
                                  .x_rows = map,
                                  .weight = weight.data(),
                                  .rstd = rstd.as<float>(),
                                  .mean = nullptr,
                                  .dy = x,
                                  .dy_rows = map,
                                  .add = nullptr,
                                  .dx = x,
                                  .dx_rows = map,
                                  .dweight = dweight.as<float>(),
                                  .dbias = nullptr,
                                  .workspace = workspace(scratch, bytes)});
  });
}

TEST_P(LargeTest, rope_pitch) {
  Buffer cosine = bench().input(DType::f32, random_values(kRows * 16, 2));
  Buffer sine = bench().input(DType::f32, random_values(kRows * 16, 3));
  expect_same_rows(2 * 32, [&](void* x, Index stride) {
    bench().run(ops::Rope{.tokens = kRows,
                          .sequence = kRows,
                          .heads = 2,
                          .head_dim = 32,
                          .token_stride = stride,
                          .type = type(),
                          .x = x,
                          .cosine = cosine.as<float>(),
                          .sine = sine.as<float>()});
  });
}

TEST_P(LargeTest, swiglu_pitch) {
  constexpr Index kColumns = 50;
  Buffer dy = bench().input(type(), random_values(kRows * kColumns, 2));
  Buffer y = bench().output(type(), kRows * kColumns);
  std::vector<Bytes> outputs;
  expect_same_rows(2 * kColumns, [&](void* gate, Index stride) {
    void* const up = static_cast<std::byte*>(gate) + kColumns * size_of(type());
    bench().run(ops::SwigluForward{.rows = kRows,
                                   .columns = kColumns,
                                   .type = type(),
                                   .gate = gate,
                                   .up = up,
                                   .in_stride = stride,
                                   .y = y.data()});
    outputs.push_back(y.bytes());
    bench().run(ops::SwigluBackward{.rows = kRows,
                                    .columns = kColumns,
                                    .type = type(),
                                    .gate = gate,
                                    .up = up,
                                    .in_stride = stride,
                                    .dy = dy.data()});
  });
  EXPECT_TRUE(same_bits(outputs.at(0), outputs.at(1)));
}

TEST_P(LargeTest, attention_pitch) {
  // q, k, v, o, d_o and the three gradients of a token lie side by side.
  constexpr Index kDim = 16;
  const ops::AttentionShape shape{.batch = 1,
                                  .sequence = kRows,
                                  .query_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = kDim,
                                  .scale = 0.25F,
                                  .type = type()};
  const auto backend = ops::AttentionBackend::own;
  const Index bytes = std::max(ops::attention_forward_workspace(shape, backend),
                               ops::attention_backward_workspace(shape, backend));
  Buffer scratch = bench().scratch(bytes);
  Buffer lse = bench().output(DType::f32, kRows);
  expect_same_rows(8 * kDim, [&](void* token, Index stride) {
    const auto part = [&](Index i) {
      return static_cast<void*>(static_cast<std::byte*>(token) + i * kDim * size_of(type()));
    };
    bench().run(ops::AttentionForward{.shape = shape,
                                      .q = part(0),
                                      .q_stride = stride,
                                      .k = part(1),
                                      .k_stride = stride,
                                      .v = part(2),
                                      .v_stride = stride,
                                      .o = part(3),
                                      .o_stride = stride,
                                      .lse = lse.as<float>(),
                                      .workspace = workspace(scratch, bytes)});
    bench().run(ops::AttentionBackward{.shape = shape,
                                       .q = part(0),
                                       .q_stride = stride,
                                       .k = part(1),
                                       .k_stride = stride,
                                       .v = part(2),
                                       .v_stride = stride,
                                       .o = part(3),
                                       .o_stride = stride,
                                       .d_o = part(4),
                                       .d_o_stride = stride,
                                       .lse = lse.as<float>(),
                                       .dq = part(5),
                                       .dq_stride = stride,
                                       .dk = part(6),
                                       .dk_stride = stride,
                                       .dv = part(7),
                                       .dv_stride = stride,
                                       .workspace = workspace(scratch, bytes)});
  });
}

/// A table whose rows lie beyond 2^31 elements: Qwen's vocabulary at a width of 16384.
TEST_P(LargeTest, embedding_rows) {
  constexpr Index kWidth = 16384;
  constexpr std::int32_t kLast = 151935;  // begins at element 2489303040
  const auto row = [](std::int32_t id) { return Index{id} * kWidth; };
  const Values first = random_values(kWidth, 1);
  const Values last = random_values(kWidth, 2);
  Buffer out = bench().output(type(), 2 * kWidth);
  Buffer ids = bench().input_raw(std::vector<std::int32_t>{kLast, 0});
  {
    LargeBuffer table(bench(), type(), row(kLast + 1));
    table.write(row(0), first);
    table.write(row(kLast), last);
    bench().run(ops::EmbeddingForward{.tokens = 2,
                                      .width = kWidth,
                                      .sequence = 2,
                                      .type = type(),
                                      .table = table.at(0),
                                      .ids = ids.as<std::int32_t>(),
                                      .positions = nullptr,
                                      .out = out.data()});
    Values want = table.read(row(kLast), kWidth);
    const Values second = table.read(row(0), kWidth);
    want.insert(want.end(), second.begin(), second.end());
    EXPECT_EQ(out.values(), want);
  }
  LargeBuffer dtable(bench(), DType::f32, row(kLast + 1));
  dtable.write(row(kLast), Values(static_cast<std::size_t>(kWidth), 1.0));
  Buffer order = bench().input_raw(std::vector<std::int32_t>{0});
  Buffer begins = bench().input_raw(std::vector<std::int32_t>{0, 1});
  Buffer unique = bench().input_raw(std::vector<std::int32_t>{kLast});
  bench().run(ops::EmbeddingBackward{.uniques = 1,
                                     .width = kWidth,
                                     .type = type(),
                                     .dy = out.data(),
                                     .order = order.as<std::int32_t>(),
                                     .begins = begins.as<std::int32_t>(),
                                     .unique = unique.as<std::int32_t>(),
                                     .dtable = dtable.as_float()});
  Values want = out.values();
  want.resize(static_cast<std::size_t>(kWidth));
  for (double& value : want) value += 1;
  EXPECT_LT(relative_error(dtable.read(row(kLast), kWidth), want), tolerance(DType::f32));
}

/// More than 2^31 elements in one flat range: the last ones are reached, and only once.
TEST_P(LargeTest, flat_counts) {
  if (type() == DType::f32) GTEST_SKIP() << "one wire type is enough for 12 GiB";
  constexpr Index kCount = (Index{1} << 31) + 21;
  LargeBuffer gradient(bench(), DType::f32, kCount);
  LargeBuffer wire(bench(), DType::bf16, kCount);
  Buffer partials = bench().scratch(8 * ops::norm_partials(kCount));
  if (GetParam().device == DeviceKind::cuda) {
    bench().stream().fill(gradient.at(0), 0, kCount * 4);  // the CPU's is zero, and not yet real
    bench().stream().synchronize();
  }
  const Values tail = {1.5, -2.0, 3.0};
  gradient.write(kCount - 3, tail);
  bench().run(ops::ReduceGradient{.count = kCount,
                                  .gradient = gradient.as_float(),
                                  .wire_type = DType::bf16,
                                  .wire = wire.at(0),
                                  .partials = partials.as<double>()});
  EXPECT_EQ(wire.read(kCount - 3, 3), tail);
  const auto sums = partials.raw<double>();
  EXPECT_EQ(sums.back(), 1.5 * 1.5 + 4 + 9);
  EXPECT_EQ(std::count(sums.begin(), sums.end(), 0.0), static_cast<Index>(sums.size()) - 1);
}

INSTANTIATE_TEST_SUITE_P(Slow, LargeTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
