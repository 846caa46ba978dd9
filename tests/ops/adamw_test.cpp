#include "core/ops/cpu/adamw_kernels.h"
#include "tests/ops/op_test.h"
#include "tests/optim/slices.h"

namespace megatrain::optest {
namespace {

using ops::AdamW;

/// type() is the gradient's type here.
class AdamWTest : public OpTest {};

/// Updates on the device what the host's portable code updates here, and compares every bit.
void expect_the_hosts_bits(OpBench& bench, SliceData data, Index skip) {
  ops::AdamWCoefficients coefficients = adamw_coefficients({}, 3e-4, 0.7, 3, true);
  coefficients.rounding_key = rounding_key(3, 1);
  const auto bytes_of = [](const void* from, Index bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    return std::vector<std::byte>(begin, begin + bytes);
  };
  const Index count = data.count();
  ops::AdamWSlice host = data.slice();
  const Index weight = host.weight_bytes();
  const Index lacking = count * remainder_bytes(data.master);
  Buffer weights = bench.input_raw(bytes_of(host.weights, count * weight));
  Buffer remainder = bench.input_raw(bytes_of(host.remainder, lacking));
  Buffer exp_avg = bench.input_raw(data.exp_avg);
  Buffer exp_avg_sq = bench.input_raw(data.exp_avg_sq);
  Buffer gradient = bench.input_raw(bytes_of(host.gradient, count * size_of(data.gradient_type)));

  const ops::AdamWSlice device{
      .count = count,
      .weights = static_cast<std::byte*>(weights.data()),
      .remainder = lacking > 0 ? static_cast<std::int16_t*>(remainder.data()) : nullptr,
      .exp_avg = static_cast<std::byte*>(exp_avg.data()),
      .exp_avg_sq = static_cast<std::byte*>(exp_avg_sq.data()),
      .gradient = static_cast<const std::byte*>(gradient.data()),
      .gradient_type = data.gradient_type,
      .moment_type = data.moment_type,
      .master = data.master,
      .position = data.position};
  bench.run(AdamW{device.part(skip, count - skip), coefficients});
  ops::cpu::adamw_update_portable(host.part(skip, count - skip), coefficients);

  EXPECT_TRUE(same_bits(weights.bytes(), bytes_of(host.weights, count * weight)));
  EXPECT_TRUE(same_bits(remainder.bytes(), bytes_of(host.remainder, lacking)));
  EXPECT_TRUE(same_bits(exp_avg.bytes(), data.exp_avg));
  EXPECT_TRUE(same_bits(exp_avg_sq.bytes(), data.exp_avg_sq));
}

TEST_P(AdamWTest, has_the_bits_of_the_host) {
  for (const DType moments : {DType::f32, DType::bf16})
    for (const MasterFormat master : {MasterFormat::split, MasterFormat::fp32, MasterFormat::bf16})
      for (const Index count : {1, 8, 2047, 70001}) {
        SliceData awkward(count, master, type(), moments);
        awkward.fill_awkward(7);
        expect_the_hosts_bits(bench(), awkward, 0);
        SliceData usual(count, master, type(), moments);
        usual.fill_usual(8);
        expect_the_hosts_bits(bench(), usual, 0);
      }
}

TEST_P(AdamWTest, has_them_where_nothing_is_aligned) {
  for (const DType moments : {DType::f32, DType::bf16})
    for (const MasterFormat master : {MasterFormat::split, MasterFormat::bf16}) {
      SliceData data(30011, master, type(), moments);
      data.fill_awkward(9);
      expect_the_hosts_bits(bench(), data, 3);
    }
}

TEST_P(AdamWTest, has_them_where_positions_pass_2_to_the_32) {
  SliceData data(30011, MasterFormat::bf16, type(), DType::bf16);
  data.fill_usual(10);
  data.position = (Index{1} << 32) - 12345;
  expect_the_hosts_bits(bench(), data, 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, AdamWTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
