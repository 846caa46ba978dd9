#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "io/hdf5/hdf5_writer.h"
#include "io/safetensors_writer.h"
#include "io/tensors/comparison.h"
#include "io/tensors/statistics.h"
#include "io/tensors/values.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

/// A tensor in memory.
template <class Number>
NamedTensor tensor(std::string name, FileType type, const std::vector<Number>& values,
                   std::vector<Index> shape = {}) {
  const auto bytes = std::as_bytes(std::span(values));
  const auto held = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  if (shape.empty()) shape = {std::ssize(*held) * 8 / bits_of(type)};
  return {.name = std::move(name),
          .type = type,
          .shape = std::move(shape),
          .bytes = std::ssize(*held),
          .file = "memory",
          .read = [held](Index first, std::span<std::byte> out) {
            std::memcpy(out.data(), held->data() + first, out.size());
          }};
}

double value_of(FileType type, std::initializer_list<unsigned> bytes) {
  std::vector<std::byte> raw;
  for (const unsigned byte : bytes) raw.push_back(static_cast<std::byte>(byte));
  double value = 0;
  to_doubles(type, raw, {&value, 1});
  return value;
}

TEST(Values, SmallFloatsAreWhatTheirFormatsSay) {
  using enum FileType;
  const double infinity = std::numeric_limits<double>::infinity();
  struct Case {
    FileType type;
    unsigned raw;
    double value;
  };
  for (const Case& c : std::initializer_list<Case>{{f8_e4m3, 0x00, 0},
                                                   {f8_e4m3, 0x01, 0x1p-9},
                                                   {f8_e4m3, 0x38, 1},
                                                   {f8_e4m3, 0xB8, -1},
                                                   {f8_e4m3, 0x7E, 448},
                                                   {f8_e4m3, 0x08, 0x1p-6},
                                                   {f8_e5m2, 0x3C, 1},
                                                   {f8_e5m2, 0x7B, 57344},
                                                   {f8_e5m2, 0x7C, infinity},
                                                   {f8_e5m2, 0xFC, -infinity},
                                                   {f8_e5m2, 0x01, 0x1p-16},
                                                   {f8_e4m3fnuz, 0x40, 1},
                                                   {f8_e4m3fnuz, 0x7F, 240},
                                                   {f8_e5m2fnuz, 0x40, 1},
                                                   {f8_e5m2fnuz, 0x7F, 57344},
                                                   {f8_e8m0, 127, 1},
                                                   {f8_e8m0, 0, 0x1p-127},
                                                   {f8_e8m0, 254, 0x1p127},
                                                   {i8, 0xFF, -1},
                                                   {u8, 0xFF, 255},
                                                   {boolean, 1, 1}})
    EXPECT_EQ(value_of(c.type, {c.raw}), c.value) << name(c.type) << ' ' << c.raw;
  for (const auto& [type, raw] :
       std::initializer_list<std::pair<FileType, unsigned>>{{f8_e4m3, 0x7F},
                                                            {f8_e4m3, 0xFF},
                                                            {f8_e5m2, 0x7D},
                                                            {f8_e4m3fnuz, 0x80},
                                                            {f8_e5m2fnuz, 0x80},
                                                            {f8_e8m0, 0xFF}})
    EXPECT_TRUE(std::isnan(value_of(type, {raw}))) << name(type) << ' ' << raw;
  // An E5M2 number is the upper half of an F16.
  for (unsigned raw = 0; raw < 256; ++raw) {
    const double small = value_of(f8_e5m2, {raw});
    const double half = value_of(f16, {0, raw});
    EXPECT_TRUE(small == half || (std::isnan(small) && std::isnan(half))) << raw;
  }
}

TEST(Values, TextsReadBack) {
  const auto text = [](FileType type, const auto& value) {
    return value_text(type, std::as_bytes(std::span(&value, 1)));
  };
  EXPECT_EQ(text(FileType::i64, std::int64_t{-9'007'199'254'740'993}), "-9007199254740993");
  EXPECT_EQ(text(FileType::u64, ~std::uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(text(FileType::f32, 0.1F), "0.1");
  EXPECT_EQ(text(FileType::f64, 0.1), "0.1");
  EXPECT_EQ(text(FileType::bf16, std::uint16_t{0x3F80}), "1");
}

TEST(Statistics, AreThoseOfTheValues) {
  // Three pieces; a mean far from zero, where sums of squares would lose everything.
  std::mt19937 random(1);
  std::normal_distribution<float> normal(4096.0F, 0.25F);
  std::vector<float> values(static_cast<std::size_t>(2 * kPieceElements + 77));
  for (float& value : values) value = normal(random);
  values[5] = 0.0F;
  values[values.size() - 2] = -0.0F;
  values[6] = std::numeric_limits<float>::infinity();
  values[values.size() - 3] = -std::numeric_limits<float>::infinity();
  values[7] = values[8] = values.back() = std::numeric_limits<float>::quiet_NaN();

  double sum = 0;
  double most = -1e300;
  Index count = 0;
  for (const float value : values)
    if (std::isfinite(value)) {
      sum += value;
      most = std::max(most, double{value});
      ++count;
    }
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const float value : values)
    if (std::isfinite(value)) squares += (value - mean) * (value - mean);

  const std::vector<NamedTensor> set = {tensor("a", FileType::f32, values)};
  std::optional<TensorStatistics> first;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto stats = tensor_statistics(set, pool).at(0);
    ASSERT_TRUE(stats);
    EXPECT_EQ(stats->elements, std::ssize(values));
    EXPECT_EQ(stats->nan, 3);
    EXPECT_EQ(stats->infinite, 2);
    EXPECT_EQ(stats->zero, 2);
    EXPECT_EQ(stats->min, 0);
    EXPECT_EQ(stats->max, most);
    EXPECT_NEAR(stats->mean, mean, 1e-9);
    EXPECT_NEAR(stats->std, std::sqrt(squares / static_cast<double>(count)), 1e-9);
    if (first) {
      EXPECT_EQ(stats->mean, first->mean) << "depends on the threads";
      EXPECT_EQ(stats->std, first->std);
    }
    first = stats;
  }
}

TEST(Statistics, TensorsWithoutNumbersHaveNone) {
  ThreadPool pool(1);
  NamedTensor refused = tensor("r", FileType::f32, std::vector<float>{1});
  refused.refusal = "chunked layout";
  const std::vector<NamedTensor> set = {
      tensor("c", FileType::c64, std::vector<float>{1, 2}), std::move(refused),
      tensor("e", FileType::f32, std::vector<float>{}, {0, 3}),
      tensor("n", FileType::f32, std::vector<float>{NAN, INFINITY}),
      tensor("one", FileType::i32, std::vector<std::int32_t>{-5})};
  const auto stats = tensor_statistics(set, pool);
  EXPECT_FALSE(stats[0]);
  EXPECT_FALSE(stats[1]);
  EXPECT_EQ(stats[2]->elements, 0);
  EXPECT_EQ(stats[3]->finite(), 0);
  EXPECT_EQ(stats[4]->min, -5);
  EXPECT_EQ(stats[4]->std, 0);
}

SetComparison compare(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b,
                      bool all = true) {
  ThreadPool pool(2);
  return compare_tensors(a, b, all, pool);
}

TEST(Comparison, FindsTheFirstDifferenceAndTheLargest) {
  std::vector<float> values(static_cast<std::size_t>(kPieceElements + 3000), 2.0F);
  const std::vector<Index> shape = {kPieceElements + 3000};
  std::vector<float> others = values;
  others[static_cast<std::size_t>(kPieceElements + 7)] = 2.5F;
  others[static_cast<std::size_t>(kPieceElements + 9)] = 6.0F;
  others.back() = -2.0F;
  const std::vector<NamedTensor> first = {tensor("w", FileType::f32, values, shape)};
  const std::vector<NamedTensor> second = {tensor("w", FileType::f32, others, shape)};
  const SetComparison result = compare(first, second);
  ASSERT_EQ(result.differences.size(), 1U);
  const ValueDifference& found = *result.differences[0].values;
  EXPECT_EQ(found.place, "[" + std::to_string(kPieceElements + 7) + "]");
  EXPECT_EQ(found.a, "2");
  EXPECT_EQ(found.b, "2.5");
  EXPECT_EQ(found.differing, 3);
  EXPECT_EQ(found.elements, std::ssize(values));
  EXPECT_EQ(found.max_absolute, 4);
  EXPECT_EQ(found.max_relative, 2);
  EXPECT_FALSE(result.same());
  EXPECT_TRUE(compare(first, first).same());
}

TEST(Comparison, TellsPlaceByTheShape) {
  const std::vector<float> values(24, 1.0F);
  std::vector<float> others = values;
  others[17] = 2;
  const auto result = compare({tensor("w", FileType::f32, values, {2, 3, 4})},
                              {tensor("w", FileType::f32, others, {2, 3, 4})});
  EXPECT_EQ(result.differences.at(0).values->place, "[1, 1, 1]");
}

TEST(Comparison, GoesByBitsWithinATypeAndByNumbersAcross) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto nan2 = std::bit_cast<float>(0x7FC00001U);
  const auto one = [](const std::vector<float>& a, const std::vector<float>& b) {
    return compare({tensor("w", FileType::f32, a)}, {tensor("w", FileType::f32, b)});
  };
  EXPECT_TRUE(one({nan, 1}, {nan, 1}).same());
  for (const auto& [a, b] : {std::pair(0.0F, -0.0F), std::pair(nan, nan2)}) {
    const auto result = one({a}, {b});
    ASSERT_FALSE(result.same());
    EXPECT_EQ(result.differences[0].values->differing, 1);
    EXPECT_EQ(result.differences[0].values->max_absolute, 0);
    EXPECT_EQ(result.differences[0].values->max_relative, 0);
  }
  const auto infinite = one({nan, 1}, {1, INFINITY});
  EXPECT_EQ(infinite.differences[0].values->differing, 2);
  EXPECT_EQ(infinite.differences[0].values->max_absolute, INFINITY);
  EXPECT_EQ(infinite.differences[0].values->max_relative, INFINITY);

  // Another type with the same numbers is a difference, but not of values.
  const std::vector<NamedTensor> wide = {
      tensor("w", FileType::f32, std::vector<float>{1, -0.0F, nan})};
  const auto same =
      compare(wide, {tensor("w", FileType::bf16, std::vector<std::uint16_t>{0x3F80, 0, 0x7FC0})});
  ASSERT_EQ(same.differences.size(), 1U);
  EXPECT_TRUE(same.differences[0].compared);
  EXPECT_FALSE(same.differences[0].values);
  const auto other =
      compare(wide, {tensor("w", FileType::bf16, std::vector<std::uint16_t>{0x3F80, 0, 0x3F80})});
  EXPECT_EQ(other.differences.at(0).values->place, "[2]");
}

TEST(Comparison, TypesWithoutNumbersGoByBytes) {
  const auto result = compare({tensor("c", FileType::c64, std::vector<float>{1, 2})},
                              {tensor("c", FileType::c64, std::vector<float>{1, 2.5F})});
  EXPECT_EQ(result.differences.at(0).values->place, "byte 6");
  EXPECT_EQ(result.differences.at(0).values->elements, 8);
}

TEST(Comparison, SortsOutWhatIsOnlyInOneAndStopsWhenToldTo) {
  const std::vector<float> v = {1};
  const std::vector<float> w = {2};
  const std::vector<NamedTensor> a = {
      tensor("a", FileType::f32, v), tensor("b", FileType::f32, v), tensor("c", FileType::f32, v),
      tensor("d", FileType::f32, v, {1, 1}), tensor("e", FileType::f32, v)};
  const std::vector<NamedTensor> b = {tensor("b", FileType::f32, w), tensor("c", FileType::f32, v),
                                      tensor("d", FileType::f32, v), tensor("f", FileType::f32, v)};
  const SetComparison all = compare(a, b);
  ASSERT_EQ(all.only_a.size(), 2U);
  EXPECT_EQ(all.only_a[1]->name, "e");
  ASSERT_EQ(all.only_b.size(), 1U);
  EXPECT_EQ(all.only_b[0]->name, "f");
  ASSERT_EQ(all.differences.size(), 2U);
  EXPECT_EQ(all.differences[1].a->name, "d");
  EXPECT_FALSE(all.differences[1].compared);
  EXPECT_EQ(all.equal, 1);
  const SetComparison one = compare(a, b, false);
  EXPECT_EQ(one.differences.size(), 1U);
  EXPECT_EQ(one.compared, 1);
  EXPECT_EQ(one.only_a.size(), 2U);

  std::vector<NamedTensor> refused = {tensor("b", FileType::f32, v)};
  refused[0].refusal = "chunked layout";
  expect_user_error([&] { compare(refused, b); }, {"'b'", "chunked layout"});
}

TEST(TensorSet, OpensEveryKindOfFile) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  const auto expect_values = [&](const TensorSet& set, const std::string& name) {
    ASSERT_EQ(set.tensors.size(), 1U);
    const NamedTensor& found = set.tensors[0];
    EXPECT_EQ(found.name, name);
    EXPECT_EQ(found.shape, (std::vector<Index>{2, 3}));
    EXPECT_EQ(found.elements(), 6);
    std::vector<float> part(2);
    found.read(8, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part, (std::vector<float>{3, 4}));
    EXPECT_EQ(set.files.size(), 1U);
  };
  {
    SafetensorsWriter writer(folder / "model.safetensors", {{"x.weight", FileType::f32, {2, 3}}});
    writer.write(0, 0, bytes);
    writer.finish();
  }
  expect_values(open_tensors(folder / "model.safetensors"), "x.weight");
  EXPECT_EQ(open_tensors(folder / "model.safetensors").kind, TensorSet::Kind::safetensors);
  expect_values(open_tensors(folder.path()), "x.weight");
  EXPECT_EQ(open_tensors(folder.path()).kind, TensorSet::Kind::hf_folder);
  {
    const std::vector<Hdf5DatasetSpec> specs = {{"/params/x.weight", FileType::f32, {2, 3}}};
    const Hdf5Layout layout = create_hdf5(folder / "any.name", specs, {});
    std::fstream file(folder / "any.name", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(layout.offsets[0]);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  const TensorSet hdf5 = open_tensors(folder / "any.name");
  expect_values(hdf5, "/params/x.weight");
  EXPECT_EQ(hdf5.kind, TensorSet::Kind::hdf5);
  EXPECT_EQ(weights_of(hdf5).at(0).name, "x.weight");

  put_file(folder / "text.h5", "no such thing");
  expect_user_error([&] { open_tensors(folder / "text.h5"); }, {"text.h5", "HDF5"});
  put_file(folder / "text", "no such thing at all");
  expect_user_error([&] { open_tensors(folder / "text"); }, {"text", "safetensors"});
  expect_user_error([&] { open_tensors(folder / "absent"); }, {"absent"});
  fs::create_directory(folder / "empty");
  expect_user_error([&] { open_tensors(folder / "empty"); }, {"empty", "checkpoint"});
}

}  // namespace
}  // namespace megatrain::io
