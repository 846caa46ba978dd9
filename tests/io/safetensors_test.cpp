#include "io/safetensors.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "core/base/bfloat16.h"
#include "io/safetensors_writer.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

std::string file_of(std::string_view header, std::string_view data) {
  return bytes_of_value(static_cast<std::uint64_t>(header.size())) + std::string(header) +
         std::string(data);
}

/// One tensor entry.
std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

struct Hostile {
  std::string name;
  std::string content;
  std::string says;  ///< what the error must name
};

std::vector<Hostile> hostile_files() {
  const std::string eight(8, '\1');
  const std::string good = entry("a", "F32", "[2]", "[0,8]");
  const auto two = [&](const std::string& second, const std::string& data) {
    return file_of("{" + good + "," + second + "}", data);
  };
  std::vector<Hostile> files = {
      {"Empty", "", "0 bytes"},
      {"ShorterThanLength", "1234567", "7 bytes"},
      {"HeaderBeyondFile", bytes_of_value(std::uint64_t{1000}) + "{}", "header of 1000 bytes"},
      {"HeaderHuge", bytes_of_value(~std::uint64_t{0}) + "{}", "at most 100000000"},
      {"HeaderAboveCap", bytes_of_value(std::uint64_t{100'000'001}) + "{}", "at most 100000000"},
      {"HeaderEmpty", file_of("", ""), "begin with '{'"},
      {"HeaderNotJson", file_of("{\"a\":", ""), "not valid JSON"},
      {"HeaderLeadingSpace", file_of(" {}", ""), "begin with '{'"},
      {"HeaderArray", file_of("[]", ""), "begin with '{'"},
      {"HeaderTrailingText", file_of("{} x", ""), "not valid JSON"},
      {"HeaderTrailingObject", file_of("{}{}", ""), "not valid JSON"},
      {"HeaderTrailingNul", file_of(std::string_view("{}\0", 3), ""), "not valid JSON"},
      {"Comment", file_of("{/**/}", ""), "not valid JSON"},
      {"InvalidUtf8", file_of("{\"\xff\":{}}", ""), "not valid JSON"},
      {"LoneSurrogate", file_of("{\"\\ud800\":{}}", ""), "not valid JSON"},
      {"NulInName", file_of("{" + entry("a\\u0000b", "F32", "[2]", "[0,8]") + "}", eight), "NUL"},
      {"DuplicateName", two(good, eight), "twice"},
      {"DuplicateNameEscaped", two(entry("\\u0061", "F32", "[2]", "[0,8]"), eight), "twice"},
      {"DuplicateField",
       file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight),
       "twice"},
      {"DuplicateMetadata", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "twice"},
      {"MetadataNumber", file_of(R"({"__metadata__":{"k":1}})", ""), "'k' is a number"},
      {"MetadataNested", file_of(R"({"__metadata__":{"k":{}}})", ""), "'k' is an object"},
      {"MetadataArray", file_of(R"({"__metadata__":[]})", ""), "'__metadata__' is an array"},
      {"TensorNumber", file_of(R"({"a":1})", ""), "'a' is a number"},
      {"TensorNull", file_of(R"({"a":null})", ""), "'a' is null"},
      {"UnknownField",
       file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":"y"}})", eight), "'x'"},
      {"MissingType", file_of(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight), "'dtype'"},
      {"MissingShape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", eight), "'shape'"},
      {"MissingOffsets", file_of(R"({"a":{"dtype":"F32","shape":[2]}})", eight), "'data_offsets'"},
      {"UnknownType", file_of("{" + entry("a", "F33", "[2]", "[0,8]") + "}", eight), "'F33'"},
      {"ShapeMismatch", file_of("{" + entry("a", "F32", "[3]", "[0,8]") + "}", eight),
       "need 12 bytes, its data_offsets span 8"},
      {"TypeMismatch", file_of("{" + entry("a", "F64", "[2]", "[0,8]") + "}", eight),
       "need 16 bytes"},
      {"HalfByte", file_of("{" + entry("a", "F4", "[15]", "[0,8]") + "}", eight), "whole number"},
      {"ShapeNegative", file_of("{" + entry("a", "F32", "[-2]", "[0,8]") + "}", eight),
       "negative dimension"},
      {"ShapeFraction", file_of("{" + entry("a", "F32", "[2.0]", "[0,8]") + "}", eight),
       "no 63-bit integer"},
      {"ShapeHuge",
       file_of("{" + entry("a", "F32", "[99999999999999999999]", "[0,8]") + "}", eight),
       "no 63-bit integer"},
      {"ShapeOverflow",
       file_of("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", eight),
       "overflows"},
      // 2^62 elements of 4 bytes are 2^64 bytes: 0 in arithmetic that wraps.
      {"ShapeWrapsToZero",
       file_of("{" + entry("a", "F32", "[4611686018427387904]", "[0,0]") + "}", ""), "overflows"},
      {"ShapeOverflowThenZero",
       file_of("{" + entry("a", "F32", "[4611686018427387904,4,0]", "[0,0]") + "}", ""),
       "overflows"},
      {"RankTooHigh", file_of("{" + entry("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") + "}", eight),
       "more than 8"},
      {"ShapeNested", file_of("{" + entry("a", "F32", "[[2]]", "[0,8]") + "}", eight), "array"},
      {"OffsetsThree", file_of("{" + entry("a", "F32", "[2]", "[0,8,8]") + "}", eight),
       "more than 2"},
      {"OffsetsOne", file_of("{" + entry("a", "F32", "[2]", "[0]") + "}", eight), "two numbers"},
      {"OffsetsReversed", file_of("{" + entry("a", "F32", "[2]", "[8,0]") + "}", eight),
       "before it begins"},
      {"OffsetsNegative", file_of("{" + entry("a", "F32", "[2]", "[-8,0]") + "}", eight),
       "negative offset"},
      {"OffsetsBeyondFile", two(entry("b", "F32", "[2]", "[8,16]"), eight), "cut short"},
      {"OffsetsHuge",
       file_of("{" + entry("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") + "}",
               eight),
       "overflows"},
      {"Overlap", two(entry("b", "F32", "[2]", "[4,12]"), eight + "1234"), "overlap"},
      {"SameRange", two(entry("b", "F32", "[2]", "[0,8]"), eight), "overlap"},
      {"Hole", two(entry("b", "F32", "[2]", "[12,20]"), eight + eight + "1234"), "hole"},
      {"HoleAtBegin", file_of("{" + entry("a", "F32", "[1]", "[4,8]") + "}", eight), "hole"},
      {"TrailingBytes", file_of("{" + good + "}", eight + "x"), "1 bytes follow"},
      {"DataCut", file_of("{" + good + "}", "1234567"), "cut short"},
      {"Deep", file_of("{\"a\":" + std::string(100'000, '['), ""), "array"},
  };
  // Names in messages are cut and cleaned.
  files.push_back({"LongBadName", file_of("{\"" + std::string(10'000, 'n') + "\\u001b[2J\":7}", ""),
                   "nnn...'"});
  return files;
}

std::ostream& operator<<(std::ostream& out, const Hostile& hostile) { return out << hostile.name; }

class HostileSafetensors : public testing::TestWithParam<Hostile> {};

TEST_P(HostileSafetensors, IsRefusedByName) {
  const TemporaryFolder folder;
  const auto path = put_file(folder / "x.safetensors", GetParam().content);
  expect_user_error([&] { SafetensorsFile file(path); }, {"x.safetensors", GetParam().says});
}

INSTANTIATE_TEST_SUITE_P(Corpus, HostileSafetensors, testing::ValuesIn(hostile_files()),
                         [](const auto& each) { return each.param.name; });

TEST(Safetensors, TooManyTensorsAreRefused) {
  std::string header = "{";
  for (Index i = 0; i <= kMaxSafetensorsTensors; ++i) {
    if (i > 0) header += ',';
    header += entry(std::to_string(i), "U8", "[]", "[0,1]");
  }
  header += "}";
  const auto bytes = std::as_bytes(std::span(header));
  expect_user_error(
      [&] { parse_safetensors_header(bytes, 8 + static_cast<Index>(header.size()), "x"); },
      {"more than 500000 tensors"});
}

TEST(Safetensors, EveryCutOfAFileIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = file_of(
      "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "BF16", "[]", "[8,10]") + "}  ",
      "0123456789");
  SafetensorsFile valid(put_file(folder / "whole", whole));
  EXPECT_EQ(valid.header().tensors.size(), 2U);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto path = put_file(folder / "cut", whole.substr(0, length));
    EXPECT_THROW(SafetensorsFile file(path), UserError) << length;
  }
}

TEST(Safetensors, ValidOddities) {
  const TemporaryFolder folder;
  // Trailing spaces, rank 0, empty tensors, unaligned data, metadata, every place for them.
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"}," + entry("byte", "U8", "[]", "[0,1]") + "," +
      entry("empty", "F32", "[0,7]", "[1,1]") + "," + entry("odd", "F32", "[1]", "[1,5]") + "," +
      entry("last", "F16", "[3,0]", "[5,5]") + "}   ";
  const float value = 1.5F;
  SafetensorsFile file(put_file(folder / "f", file_of(header, "x" + bytes_of_value(value))));
  EXPECT_EQ(file.header().metadata.size(), 1U);
  EXPECT_EQ(file.header().metadata[0].second, "v");
  EXPECT_EQ(file.header().tensors.size(), 4U);
  ASSERT_NE(file.find("odd"), nullptr);
  EXPECT_EQ(file.find("odd")->elements(), 1);
  float read = 0;
  file.read_floats(*file.find("odd"), 0, {&read, 1});
  EXPECT_EQ(read, value);
  EXPECT_EQ(file.find("absent"), nullptr);
  expect_user_error([&] { file.read_floats(*file.find("byte"), 0, {&read, 1}); },
                    {"'byte' is U8", "F32, BF16 or F16"});
}

TEST(Safetensors, NotAFileIsRefused) {
  const TemporaryFolder folder;
  expect_user_error([&] { SafetensorsFile file(folder / "absent"); }, {"absent", "No such file"});
  expect_user_error([&] { SafetensorsFile file(folder.path()); }, {"not a regular file"});
}

TEST(Safetensors, AFileCutWhileOpenIsAnErrorAndNoSignal) {
  const TemporaryFolder folder;
  const auto path =
      put_file(folder / "f", file_of("{" + entry("a", "F32", "[2]", "[0,8]") + "}", "01234567"));
  SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  float values[2];
  EXPECT_THROW(file.read_floats(*file.find("a"), 0, values), Error);
}

TEST(Safetensors, WriterAndReaderRoundTrip) {
  const TemporaryFolder folder;
  const auto path = folder / "f.safetensors";
  std::vector<float> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), -500.25F);
  std::vector<std::byte> rounded(2000);
  from_floats(DType::bf16, numbers, rounded);
  {
    SafetensorsWriter writer(path, {{"b\"\n\u00e9", FileType::bf16, {10, 100}},
                                    {"a", FileType::f32, {1000}},
                                    {"empty", FileType::f32, {0, 3}}});
    EXPECT_FALSE(std::filesystem::exists(path));
    // Pieces in any order.
    writer.write(1, 2000, std::as_bytes(std::span(numbers)).subspan(2000));
    writer.write(0, 0, rounded);
    writer.write(1, 0, std::as_bytes(std::span(numbers)).first(2000));
    writer.finish();
  }
  const SafetensorsFile file(path);
  ASSERT_EQ(file.header().tensors.size(), 3U);
  EXPECT_EQ(file.header().tensors[0].name, "a");  // widest first
  EXPECT_EQ(file.header().tensors[0].begin % kSafetensorsAlignment, 0);
  EXPECT_EQ(file.header().metadata,
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  const TensorInfo* b = file.find("b\"\n\u00e9");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<Index>{10, 100}));
  std::vector<float> read(999);
  file.read_floats(*file.find("a"), 1, read);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), numbers.begin() + 1));
  file.read_floats(*b, 1, read);
  for (std::size_t i = 0; i < read.size(); ++i)
    ASSERT_EQ(read[i], to_float(to_bfloat16(numbers[i + 1]))) << i;
}

TEST(Safetensors, WriterRefusesMisuse) {
  const TemporaryFolder folder;
  const auto path = folder / "f";
  expect_user_error(
      [&] {
        SafetensorsWriter writer(path, {{"a", FileType::f32, {1}}, {"a", FileType::f32, {1}}});
      },
      {"two tensors", "'a'"});
  {
    SafetensorsWriter writer(path, {{"a", FileType::f32, {2}}, {"b", FileType::f32, {2}}});
    const std::byte four[12] = {};
    EXPECT_THROW(writer.write(0, 0, four), LogicError);
    writer.write(0, 0, std::span(four).first(8));
    EXPECT_THROW(writer.finish(), LogicError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FileType, NamesAndWidths) {
  for (const char* known :
       {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
        "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    const auto type = file_type(known);
    ASSERT_TRUE(type) << known;
    EXPECT_EQ(name(*type), known);
  }
  EXPECT_EQ(bits_of(FileType::f4), 4);
  EXPECT_EQ(bits_of(FileType::f6_e2m3), 6);
  EXPECT_EQ(bits_of(FileType::c64), 64);
  EXPECT_FALSE(file_type("float32"));
}

TEST(FileType, EveryHalfWidensExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto raw = static_cast<std::uint16_t>(bits);
    float value = 0;
    to_floats(FileType::f16, std::as_bytes(std::span(&raw, 1)), {&value, 1});
    const int exponent = static_cast<int>((bits >> 10) & 0x1f);
    const int mantissa = static_cast<int>(bits & 0x3ff);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0) << bits;
      if (mantissa == 0) {
        EXPECT_EQ(value, sign * INFINITY) << bits;
      }
      continue;
    }
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(value), sign * expected) << bits;
    ASSERT_EQ(std::signbit(value), sign < 0) << bits;
  }
}

}  // namespace
}  // namespace megatrain::io
