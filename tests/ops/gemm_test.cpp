#include "core/ops/gemm.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::BiasGradient;
using ops::Gemm;

/// A product to be tried; pitches are the tight ones plus `gap`.
struct Shape {
  Index m, n, k;
  bool transpose_a = false, transpose_b = false;
  Index gap = 0;
  bool bias = false;
  enum { none, in_place, residual } c = none;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.m << "x" << s.n << "x" << s.k << " ta=" << s.transpose_a
             << " tb=" << s.transpose_b << " gap=" << s.gap << " bias=" << s.bias << " c=" << s.c;
}

std::vector<Shape> shapes() {
  return {
      {.m = 1, .n = 1, .k = 1},
      {.m = 3, .n = 5, .k = 7},
      {.m = 64, .n = 96, .k = 128, .gap = 3},
      {.m = 65, .n = 33, .k = 17, .transpose_a = true, .gap = 1, .bias = true},
      {.m = 65, .n = 33, .k = 17, .transpose_b = true, .gap = 5, .c = Shape::residual},
      {.m = 31, .n = 29, .k = 300, .transpose_a = true, .transpose_b = true, .gap = 2},
      {.m = 1, .n = 200, .k = 100, .transpose_b = true, .bias = true, .c = Shape::in_place},
      {.m = 200, .n = 1, .k = 100, .transpose_a = true, .c = Shape::in_place},
      // More than one tile each way, the last ones cut short.
      {.m = 300, .n = 1100, .k = 70, .transpose_b = true, .bias = true, .c = Shape::residual},
      {.m = 1025, .n = 513, .k = 40, .transpose_a = true, .gap = 7, .c = Shape::in_place},
      {.m = 512, .n = 1024, .k = 64, .bias = true},
      // Long sums.
      {.m = 40, .n = 50, .k = 5000, .transpose_a = true, .c = Shape::in_place},
      // Nothing to multiply, nothing to write.
      {.m = 9, .n = 11, .k = 0, .gap = 1, .bias = true, .c = Shape::residual},
      {.m = 9, .n = 11, .k = 0},
      {.m = 0, .n = 11, .k = 4},
      {.m = 9, .n = 0, .k = 4},
  };
}

struct Matrix {
  Index rows, columns, pitch;
  [[nodiscard]] Index elements() const { return rows * pitch; }
};

class GemmTest : public OpTest {
 protected:
  /// Runs `shape` on `bench` with operands of type() and checks the result, gaps included.
  static Bytes run(OpBench& bench, DType in, DType out, const Shape& s, bool check) {
    const Matrix a = matrix(s.m, s.k, s.transpose_a, s.gap);
    const Matrix b = matrix(s.k, s.n, s.transpose_b, s.gap);
    const Matrix d = matrix(s.m, s.n, false, s.gap);
    const Matrix c{s.m, s.n, s.n + 2 * s.gap};
    const Buffer a_buffer = bench.input(in, random_values(a.elements(), 1));
    const Buffer b_buffer = bench.input(in, random_values(b.elements(), 2));
    const Buffer bias = bench.input(in, random_values(s.n, 3));
    const Buffer c_buffer = bench.input(out, random_values(c.elements(), 4));
    const Buffer d_buffer = bench.input(out, random_values(d.elements(), 5));
    const Values before = d_buffer.values();
    const bool on_cpu = bench.device().info().kind == DeviceKind::cpu;
    const Index scratch_bytes = on_cpu ? 0 : ops::kGemmWorkspace;
    const Buffer scratch = bench.scratch(scratch_bytes);
    Gemm op;
    op.m = s.m;
    op.n = s.n;
    op.k = s.k;
    op.a = a_buffer.data();
    op.lda = a.pitch;
    op.transpose_a = s.transpose_a;
    op.b = b_buffer.data();
    op.ldb = b.pitch;
    op.transpose_b = s.transpose_b;
    op.in = in;
    op.d = d_buffer.data();
    op.ldd = d.pitch;
    op.out = out;
    op.workspace = workspace(scratch, scratch_bytes);
    if (s.bias) op.bias = bias.data();
    if (s.c == Shape::in_place) {
      op.c = op.d;
      op.ldc = op.ldd;
    } else if (s.c == Shape::residual) {
      op.c = c_buffer.data();
      op.ldc = c.pitch;
    }
    bench.run(op);
    if (!check) return d_buffer.bytes();

    // The reference, and what must have stayed as it was in the gaps.
    const Values av = a_buffer.values();
    const Values bv = b_buffer.values();
    const Values biasv = bias.values();
    const Values cv = s.c == Shape::in_place ? before : c_buffer.values();
    const Index ldc = s.c == Shape::in_place ? d.pitch : c.pitch;
    const Values after = d_buffer.values();
    Values result;
    Values reference;
    for (Index i = 0; i < s.m; ++i)
      for (Index j = 0; j < d.pitch; ++j) {
        const auto at = static_cast<std::size_t>(i * d.pitch + j);
        if (j >= s.n) {
          EXPECT_EQ(after[at], before[at]) << "wrote into the gap of row " << i;
          continue;
        }
        double sum = s.bias ? biasv[static_cast<std::size_t>(j)] : 0;
        if (s.c != Shape::none) sum += cv[static_cast<std::size_t>(i * ldc + j)];
        for (Index l = 0; l < s.k; ++l)
          sum += av[static_cast<std::size_t>(s.transpose_a ? l * a.pitch + i : i * a.pitch + l)] *
                 bv[static_cast<std::size_t>(s.transpose_b ? j * b.pitch + l : l * b.pitch + j)];
        reference.push_back(sum);
        result.push_back(after[at]);
      }
    EXPECT_LT(relative_error(result, reference), tolerance(out));
    return d_buffer.bytes();
  }

  static Matrix matrix(Index rows, Index columns, bool transposed, Index gap) {
    if (transposed) std::swap(rows, columns);
    return {rows, columns, columns + gap};
  }
};

TEST_P(GemmTest, AgreesWithFp64) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    run(bench(), type(), type(), shape, true);
  }
}

TEST_P(GemmTest, AccumulatesInFp32) {
  // The gradient of a weight: operands of the compute type, an fp32 sum over micro-batches.
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    run(bench(), type(), DType::f32, shape, true);
  }
}

TEST_P(GemmTest, BitsAreReproducible) {
  for (const Shape& shape :
       {Shape{.m = 300, .n = 600, .k = 700, .transpose_b = true, .bias = true},
        Shape{.m = 300, .n = 200, .k = 1500, .transpose_a = true, .c = Shape::in_place}})
    expect_reproducible([&](OpBench& bench) {
      Bytes bits = run(bench, type(), type(), shape, false);
      const Bytes wide = run(bench, type(), DType::f32, shape, false);
      bits.insert(bits.end(), wide.begin(), wide.end());
      return bits;
    });
}

TEST(CpuGemm, UsesNoThreadsButThePools) {
  // The library is built with OpenMP, whose threads would stay after the first parallel call.
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  OpBench bench(DeviceKind::cpu, DType::f32, 1);
  const Buffer x = bench.input(DType::f32, random_values(512 * 512, 1));
  const Buffer y = bench.output(DType::f32, 512 * 512);
  Gemm op;
  op.m = op.n = op.k = op.lda = op.ldb = op.ldd = 512;
  op.a = op.b = x.data();
  op.d = y.data();
  const auto before = threads();
  bench.run(op);
  EXPECT_EQ(threads(), before);
}

TEST(CpuGemm, RefusesWhatItHasNoKernelFor) {
  OpBench bench(DeviceKind::cpu, DType::f32);
  const Buffer memory = bench.scratch(4096);
  Gemm op;
  op.m = op.n = op.k = op.lda = op.ldb = op.ldd = 4;
  op.a = op.b = op.d = memory.data();
  op.out = DType::bf16;
  EXPECT_THROW(bench.run(op), LogicError) << "fp32 operands, bf16 result";
  op.out = DType::f32;
  op.ldd = 3;
  EXPECT_THROW(bench.run(op), LogicError) << "rows that overlap";
}

#if defined(__x86_64__)
TEST(CpuGemm, RefusesBf16WhereTheProcessorLacksIt) {
  // The library reads its limit once, so this needs a process of its own.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
  const auto ask = [] {
    const auto device = make_cpu_device();
    static_cast<void>(ops::make_ops(*device, DType::f32));
    try {
      static_cast<void>(ops::make_ops(*device, DType::bf16));
    } catch (const UserError& error) {
      std::fputs(error.what(), stderr);
      std::exit(2);
    }
    std::exit(0);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(2), "bf16.*avx512_core.*--compute fp32");
  unsetenv("DNNL_MAX_CPU_ISA");
}
#endif

INSTANTIATE_TEST_SUITE_P(Ops, GemmTest, testing::ValuesIn(op_cases()), op_case_name);

class BiasGradientTest : public OpTest {
 protected:
  static Bytes run(OpBench& bench, DType type, Index rows, Index columns, Index ld, bool accumulate,
                   bool check) {
    const Buffer dy = bench.input(type, random_values(rows * ld, 1));
    const Buffer db = bench.input(DType::f32, random_values(columns, 2));
    const Values before = db.values();
    const Index bytes = ops::column_sum_workspace(rows, columns);
    const Buffer scratch = bench.scratch(bytes);
    bench.run(BiasGradient{.rows = rows,
                           .columns = columns,
                           .dy = dy.data(),
                           .ld = ld,
                           .type = type,
                           .db = db.as<float>(),
                           .accumulate = accumulate,
                           .workspace = workspace(scratch, bytes)});
    if (check) {
      Values reference = accumulate ? before : Values(static_cast<std::size_t>(columns));
      const Values x = dy.values();
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j)
          reference[static_cast<std::size_t>(j)] += x[static_cast<std::size_t>(i * ld + j)];
      EXPECT_LT(relative_error(db.values(), reference), tolerance(DType::f32));
    }
    return db.bytes();
  }
};

TEST_P(BiasGradientTest, AgreesWithFp64) {
  for (const Index rows : {0, 1, 63, 64, 65, 1000})
    for (const Index columns : {1, 17, 512, 1030})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << "x" << columns << " accumulate=" << accumulate);
        run(bench(), type(), rows, columns, columns + 3, accumulate, true);
      }
}

TEST_P(BiasGradientTest, GroupsOfRowsGrowBeyondTheirCap) {
  // More than 1024 groups of kReductionRows rows.
  run(bench(), type(), 1024 * ops::kReductionRows + 700, 3, 3, true, true);
}

TEST_P(BiasGradientTest, BitsAreReproducible) {
  expect_reproducible(
      [&](OpBench& bench) { return run(bench, type(), 5000, 700, 700, true, false); });
}

INSTANTIATE_TEST_SUITE_P(Ops, BiasGradientTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
