#include "io/json.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/io/io_test_support.h"

namespace megatrain::io {
namespace {

std::string written(double value) {
  JsonWriter json;
  json.value(value);
  return json.text();
}

TEST(JsonWriter, BuildsLinesAndIndentedText) {
  JsonWriter line;
  line.begin_object().member("step", 3).member("loss", 2.5).member("ok", true);
  line.key("list").begin_array().value(1).value("x").null().begin_object().end_object().end_array();
  line.key("none").begin_array().end_array().end_object();
  EXPECT_EQ(line.text(), R"({"step":3,"loss":2.5,"ok":true,"list":[1,"x",null,{}],"none":[]})");

  JsonWriter text(2);
  text.begin_object().key("a").begin_array().value(1).value(2).end_array();
  text.key("e").begin_object().end_object().end_object();
  EXPECT_EQ(text.text(), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"e\": {}\n}");
}

TEST(JsonWriter, NumbersRoundTrip) {
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1e-6, 1e300, 5e-324, 1.0 / 3, 123456789012345.0,
                             std::numeric_limits<double>::max()}) {
    const JsonValue read = parse_json(written(value), "x");
    ASSERT_NE(read.as<double>(), nullptr) << written(value);
    EXPECT_EQ(*read.as<double>(), value);
    EXPECT_EQ(std::signbit(*read.as<double>()), std::signbit(value));
  }
  EXPECT_EQ(written(10000.0), "10000.0");
  EXPECT_EQ(written(NAN), "null");
  EXPECT_EQ(written(-INFINITY), "null");
  JsonWriter json;
  json.begin_array().value(std::numeric_limits<std::int64_t>::min());
  json.value(std::numeric_limits<std::uint64_t>::max()).value(0.1F).end_array();
  EXPECT_EQ(json.text(), "[-9223372036854775808,18446744073709551615,0.1]");
}

TEST(JsonWriter, StringsAreAlwaysValidAndReadBack) {
  std::string all;
  for (int byte = 0; byte < 0x80; ++byte) all += static_cast<char>(byte);
  all += "\u00e9\u20ac\U0001f600";
  JsonWriter json;
  json.value(all);
  EXPECT_EQ(*parse_json(json.text(), "x").as<std::string>(), all);

  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                          "\x80", "\xf0\x80\x80\x80"}) {
    JsonWriter cleaned;
    cleaned.value(fmt::format("a{}b", bad));
    const JsonValue read = parse_json(cleaned.text(), "x");
    const std::string& text = *read.as<std::string>();
    EXPECT_TRUE(text.starts_with("a\xef\xbf\xbd") && text.ends_with("b")) << text;
  }
}

TEST(Json, ValuesKeepOrderAndReadBack) {
  const std::string text = R"({"z":1,"a":[true,null,-5,2.5,"s"],"m":{"k":{}},"big":1e+20,"f":1.0})";
  const JsonValue value = parse_json(text, "x");
  EXPECT_EQ(to_text(value), text);
  EXPECT_EQ(*value.find("z")->as<std::int64_t>(), 1);
  EXPECT_EQ(value.find("none"), nullptr);
  EXPECT_EQ(value.find("a")->find("k"), nullptr);
}

TEST(Json, BadTextIsRefusedByPlace) {
  const auto refuses = [](std::string_view text, std::string_view says) {
    expect_user_error([&] { parse_json(text, "file.json"); }, {"file.json", says});
  };
  refuses("", "not valid JSON");
  refuses("{\"a\":1,}", "byte 8");
  refuses("[1] 2", "not valid JSON");
  refuses("{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", "'c' appears twice");
  refuses("\"\xff\"", "not valid JSON");
  refuses(std::string_view("{}\0", 3), "a NUL");
  refuses(std::string_view("\0{}", 3), "a NUL");
  refuses("NaN", "not valid JSON");
  refuses("1e999", "not valid JSON");
  refuses(std::string(1'000'000, '['), "more than 64");
  refuses(std::string(1'000'000, '{'), "not valid JSON");
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "x"));
  // A hostile token is not echoed in full, nor its control bytes.
  try {
    parse_json("[\"" + std::string(1 << 20, 'x') + "\x1b\"]", "file.json");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_LT(std::string(error.what()).size(), 400U);
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace megatrain::io
