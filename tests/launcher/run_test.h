#pragma once
/// @file
/// A folder with a small text, and the options of a run of a second or less.

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "tests/launcher/program.h"
#include "tests/temporary_folder.h"

namespace megatrain::launcher {

inline double number(const io::JsonValue& object, std::string_view key) {
  const io::JsonValue* value = object.find(key);
  if (value == nullptr) throw std::runtime_error("no " + std::string(key));
  if (const auto* whole = value->as<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* real = value->as<double>()) return *real;
  throw std::runtime_error(std::string(key) + " is no number");
}

/// The values of `key` in the lines of a metrics file that have it.
inline std::vector<double> series(const std::filesystem::path& metrics, std::string_view key) {
  std::vector<double> values;
  for (const std::string& line : lines_of(read_file(metrics))) {
    EXPECT_EQ(line.back(), '\n');
    const io::JsonValue object = io::parse_json(line, "metrics");
    if (object.find(key) != nullptr) values.push_back(number(object, key));
  }
  return values;
}

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "line " + std::to_string(i * 7919 % 400) + " of a text that repeats itself\n";
    write_text(folder_ / "text.txt", text);
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  /// `train` on the text; what `more` says again counts.
  [[nodiscard]] std::vector<std::string> train(const std::string& out,
                                               std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"train", "--data", path("text.txt"), "--out", path(out)};
    append(arguments, std::move(more));
    return arguments;
  }
  /// The options that make it small.
  [[nodiscard]] static std::vector<std::string> small(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "--model",   "llama-tiny", "--seq-len",       "32",     "--batch-tokens", "128",
        "--lr",      "3e-3",       "--device",        "cpu",    "--compute",      "fp32",
        "--threads", "2",          "--device-memory", "256MiB", "--peak",         "1e11"};
    append(arguments, std::move(more));
    return arguments;
  }
  static void append(std::vector<std::string>& to, std::vector<std::string> more) {
    for (std::string& one : more) to.push_back(std::move(one));
  }

  TemporaryFolder folder_;
};

}  // namespace megatrain::launcher
