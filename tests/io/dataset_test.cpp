#include "io/dataset.h"

#include <cmath>

#include "io/byte_tokenizer.h"
#include "io/hf_folder.h"
#include "io/token_stream.h"
#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

using Tokens = std::vector<std::int32_t>;

template <typename T>
std::string packed(const std::vector<T>& values) {
  std::string bytes;
  for (const T& value : values) bytes += bytes_of_value(value);
  return bytes;
}

/// An llm.c token file.
template <typename T>
std::string llmc_file(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return packed(header) + packed(tokens);
}

Tokens sample(const TokenSource& source, Index index) {
  Tokens tokens(static_cast<std::size_t>(source.sequence()) + 1);
  source.sample(index, tokens);
  return tokens;
}

TEST(Dataset, TextIsBytesAndDocumentsEnd) {
  const TemporaryFolder folder;
  const auto a = put_file(folder / "a.txt", "abc\xff");
  const auto b = put_file(folder / "b.jsonl",
                          "{\"text\": \"d\\u00e9\"}\n\n  \r\n{\"id\": 1, \"text\": \"f\"}");
  const Dataset data = open_dataset({.train = {a, b}, .sequence = 3, .vocabulary = 258});
  EXPECT_FALSE(data.validation);
  // a b c ff END d c3 a9 END f END
  ASSERT_EQ(data.train->samples(), 3);
  EXPECT_EQ(data.train_tokens, 9);
  EXPECT_EQ(sample(*data.train, 0), (Tokens{'a', 'b', 'c', 0xff}));
  EXPECT_EQ(sample(*data.train, 1), (Tokens{0xff, kEndToken, 'd', 0xc3}));
  EXPECT_EQ(sample(*data.train, 2), (Tokens{0xc3, 0xa9, kEndToken, 'f'}));
}

TEST(Dataset, TextThatIsNoUtf8IsNamedWithThePlace) {
  const TemporaryFolder folder;
  const auto warnings = [&](const std::string& text) {
    const auto path = put_file(folder / "a.txt", text);
    return open_dataset({.train = {path}, .sequence = 1, .vocabulary = 258}).warnings;
  };
  const std::string letters = "a\u00e9\u20ac\U0001f600";
  EXPECT_TRUE(warnings(letters).empty());
  const auto expect = [&](const std::string& text, std::size_t at) {
    const auto lines = warnings(text);
    ASSERT_EQ(lines.size(), 1U) << at;
    EXPECT_NE(lines[0].find("a.txt"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("from byte " + std::to_string(at) + " on"), std::string::npos)
        << lines[0];
  };
  expect("abc\xff", 3);
  expect("abcdefgh\xc3(", 8);
  expect("\xed\xa0\x80 a surrogate", 0);
  expect(letters + "\xe2\x82", letters.size());  // cut
  expect(letters + letters + "\xc0\x80" + letters, 2 * letters.size());
  // Files are read in pieces of 4 MiB: a character across the border, and a bad one.
  for (std::size_t before = 1; before <= 4; ++before) {
    const std::string filler((std::size_t{4} << 20) - before, 'x');
    EXPECT_TRUE(warnings(filler + "\U0001f600\u20ac" + letters).empty()) << before;
    expect(filler + "\xf0\x9f\x98x" + letters, filler.size());
    expect(filler + "\xf0\x9f\x98", filler.size());
    expect(filler + "\u20ac" + "abc\x80", filler.size() + 6);
  }
}

TEST(Dataset, RefusesWhatBeginsAsNoTextDoes) {
  using namespace std::string_literals;
  const TemporaryFolder folder;
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const auto refuses = [&](const std::string& text, std::string_view says) {
      const auto path = put_file(folder / name, text);
      expect_user_error([&] { open_dataset({.train = {path}, .sequence = 1, .vocabulary = 258}); },
                        {name, says});
    };
    refuses("\x1f\x8b\x08 and so on", "gunzip");
    refuses("\x28\xb5\x2f\xfd and so on", "unzstd");
    refuses("\xfd\x37zXZ\0 and so on"s, "unxz");
    refuses("PK\x03\x04 and so on", "unzip");
    refuses("\xff\xfet\0e\0x\0t\0"s, "byte 3 is zero");
  }
}

TEST(Dataset, LinesLongerThanThePieceReadAndErrorsNameTheLine) {
  const TemporaryFolder folder;
  const std::string big(6 << 20, 'x');
  const auto good =
      put_file(folder / "good.jsonl", "{\"text\":\"" + big + "\"}\n{\"text\":\"" + big + "y\"}\n");
  const Dataset data = open_dataset({.train = {good}, .sequence = 1, .vocabulary = 258});
  EXPECT_EQ(data.train->samples(), 2 * (6 << 20) + 2);
  EXPECT_EQ(sample(*data.train, data.train->samples() - 1), (Tokens{'y', kEndToken}));

  const auto refuses = [&](std::string_view text, std::initializer_list<std::string_view> says) {
    const auto path = put_file(folder / "bad.jsonl", text);
    expect_user_error([&] { open_dataset({.train = {path}, .sequence = 1, .vocabulary = 258}); },
                      says);
  };
  refuses("{\"text\":\"a\"}\n{\"text\":3}\n", {"bad.jsonl:2", "\"text\""});
  refuses("{\"text\":\"a\"}\n\n{\"text\":\"b\"\n", {"bad.jsonl:3", "not valid JSON"});
  refuses("{\"content\":\"a\"}\n", {"bad.jsonl:1", "\"text\""});
  refuses("[]\n", {"bad.jsonl:1"});
  refuses("\n\n", {"bad.jsonl", "no documents"});
  refuses("{\"text\":\"\"}\n", {"no documents"});
  refuses("", {"bad.jsonl", "empty"});
}

TEST(Dataset, ReadsLlmcFilesOfBothWidths) {
  const TemporaryFolder folder;
  const auto narrow =
      put_file(folder / "gpt2.bin", llmc_file<std::uint16_t>(20240520, 1, {5, 50256, 7, 65535, 9}));
  const auto wide =
      put_file(folder / "llama.bin", llmc_file<std::uint32_t>(20240801, 7, {128000, 1, 2, 99999}));
  const Dataset data = open_dataset({.train = {narrow, wide}, .sequence = 2, .vocabulary = 128256});
  // No sample crosses from file to file.
  ASSERT_EQ(data.train->samples(), 3);
  EXPECT_EQ(sample(*data.train, 0), (Tokens{5, 50256, 7}));
  EXPECT_EQ(sample(*data.train, 1), (Tokens{7, 65535, 9}));
  EXPECT_EQ(sample(*data.train, 2), (Tokens{128000, 1, 2}));
}

TEST(Dataset, ReadsHeaderlessFiles) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < 1001; ++i) ids.push_back(static_cast<std::uint16_t>(i * 65));
  const auto path = put_file(folder / "train.bin", packed(ids));
  const Dataset data = open_dataset({.train = {path}, .sequence = 1000, .vocabulary = 65536});
  ASSERT_EQ(data.train->samples(), 1);
  const Tokens tokens = sample(*data.train, 0);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(tokens[i], ids[i]) << i;
}

TEST(Dataset, BadTokenFilesAreRefusedByName) {
  const TemporaryFolder folder;
  const auto refuses = [&](std::string_view content, std::initializer_list<std::string_view> says) {
    const auto path = put_file(folder / "x.bin", content);
    expect_user_error([&] { open_dataset({.train = {path}, .sequence = 2, .vocabulary = 100}); },
                      says);
  };
  refuses("", {"x.bin", "no tokens"});
  refuses("abc", {"x.bin", "3 bytes is odd"});
  refuses(packed<std::uint16_t>({1, 2}), {"x.bin", "2 tokens", "sample of 3"});
  refuses(packed<std::uint16_t>({1, 2, 100, 4}),
          {"x.bin", "token 2 is id 100", "vocabulary is 100"});
  refuses(llmc_file<std::uint32_t>(20240801, 7, {1, 2, 0x80000001U}), {"token 2 is id 2147483649"});
  const std::string good = llmc_file<std::uint16_t>(20240520, 1, {1, 2, 3});
  refuses(good.substr(0, good.size() - 1), {"3 tokens of 2 bytes", "1030 bytes", "has 1029"});
  refuses(good + "x", {"1030 bytes", "has 1031"});
  refuses(good.substr(0, 500), {"has 500"});
  refuses(llmc_file<std::uint16_t>(20240520, 2, {1, 2, 3}), {"version 2", "version 1 is"});
  refuses(llmc_file<std::uint16_t>(20240801, 1, {1, 2, 3}), {"version 1", "version 7 is"});
  refuses(llmc_file<std::uint16_t>(20240522, 1, {1, 2, 3}), {"evaluation set"});
  refuses(llmc_file<std::uint16_t>(20240326, 1, {1, 2, 3}), {"llm.c model"});
  std::string negative = good;
  negative.replace(8, 4, bytes_of_value(std::int32_t{-1}));
  refuses(negative, {"-1 tokens"});
  put_file(folder / "x.idx", "MMIDIDX");
  refuses(packed<std::uint16_t>({1, 2, 3, 4}), {"x.idx", "Megatron"});
}

TEST(Dataset, AFileCutWhileInUseIsAnError) {
  const TemporaryFolder folder;
  const auto path = put_file(folder / "x.bin", packed<std::uint16_t>({1, 2, 3, 4}));
  const Dataset data = open_dataset({.train = {path}, .sequence = 3, .vocabulary = 100});
  std::filesystem::resize_file(path, 6);
  EXPECT_THROW(sample(*data.train, 0), Error);
  EXPECT_THROW(sample(*data.train, 1), LogicError);
}

TEST(Dataset, HoldsOutTheLastSamples) {
  const TemporaryFolder folder;
  const auto path = put_file(folder / "a.txt", std::string(100, 'a') + std::string(900, 'b'));
  DatasetOptions options{.train = {path}, .sequence = 10, .vocabulary = 258};
  options.validation_fraction = 0.1;
  const Dataset data = open_dataset(options);
  EXPECT_EQ(data.train->samples(), 90);
  ASSERT_TRUE(data.validation);
  EXPECT_EQ(data.validation->samples(), 10);
  EXPECT_EQ(data.validation_tokens, 100);
  EXPECT_EQ(sample(*data.train, 0), Tokens(11, 'a'));
  EXPECT_EQ(sample(*data.validation, 9)[10], kEndToken);
  options.validation_fraction = 1e-9;  // at least one sample
  EXPECT_EQ(open_dataset(options).validation->samples(), 1);
  options.validation_fraction = 0.999;
  expect_user_error([&] { open_dataset(options); }, {"100 samples", "none to train"});
  for (const double bad : {-0.1, 1.0, 2.0, std::nan("")}) {
    options.validation_fraction = bad;
    expect_user_error([&] { open_dataset(options); }, {"--val-fraction"});
  }
  options.validation_fraction = 0.1;
  options.validation = {path};
  expect_user_error([&] { open_dataset(options); }, {"choose one"});
  options.validation_fraction = 0;
  EXPECT_EQ(open_dataset(options).validation->samples(), 100);
}

TEST(Dataset, UnknownFilesAreRefused) {
  const TemporaryFolder folder;
  const auto refuses = [&](std::string_view name, std::initializer_list<std::string_view> says) {
    expect_user_error(
        [&] { open_dataset({.train = {folder / name}, .sequence = 2, .vocabulary = 258}); }, says);
  };
  refuses("absent.txt", {"absent.txt", "No such file"});
  refuses("x.csv", {"x.csv", ".jsonl"});
  refuses("x.jsonl.gz", {"x.jsonl.gz", "unpacked"});
  std::filesystem::create_directory(folder / "d.txt");
  refuses("d.txt", {"not a regular file"});
  put_file(folder / "short.txt", "a");
  refuses("short.txt", {"short.txt", "2 tokens"});
  expect_user_error([&] { open_dataset({.sequence = 2, .vocabulary = 258}); }, {"--data"});
  expect_user_error(
      [&] {
        open_dataset({.train = {folder / "short.txt"},
                      .sequence = 2,
                      .vocabulary = 258,
                      .text_refusal = "the model has a tokenizer of its own"});
      },
      {"short.txt", "tokenizer of its own"});
}

TEST(ByteTokenizer, RoundTrips) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Tokens tokens = encode_bytes(all);
  ASSERT_EQ(tokens.size(), 256U);
  EXPECT_EQ(tokens[255], 255);
  EXPECT_EQ(decode_bytes(tokens), all);
  EXPECT_EQ(decode_bytes(Tokens{kBeginToken, 'a', kEndToken, 'b', 258, -1}),
            "ab\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(ByteTokenizer, KnowsItsOwnFolders) {
  const std::vector<SideFile> marked = byte_tokenizer_files();
  EXPECT_FALSE(refuse_bytes(marked, 258));
  EXPECT_FALSE(refuse_bytes(marked, 152064));
  EXPECT_FALSE(refuse_bytes({}, 258));
  EXPECT_NE(refuse_bytes({}, 257)->find("257"), std::string::npos);
  EXPECT_NE(refuse_bytes({}, 50257)->find("50257"), std::string::npos);
  EXPECT_NE(refuse_bytes({{"tokenizer.json", "{}"}}, 258)->find("tokenizer.json"),
            std::string::npos);
  EXPECT_TRUE(refuse_bytes({{"tokenizer.model", ""}}, 258));
  EXPECT_TRUE(refuse_bytes({{"tokenizer_config.json", R"({"tokenizer_class":"X"})"}}, 258));
}

}  // namespace
}  // namespace megatrain::io
