#include <gtest/gtest.h>

#include "launcher/options/config_file.h"
#include "launcher/options/run_options.h"
#include "launcher/options/toml.h"
#include "launcher/session/numerics_key.h"
#include "tests/launcher/program.h"

namespace megatrain::launcher {
namespace {

TEST(Toml, ReadsWhatConfigurationsHold) {
  const auto entries = parse_toml(
      "# comment\n"
      "top = 1\r\n"
      "[train]  # comment\n"
      "steps = 1_000\n"
      "lr=3e-4\n"
      "\"seq-len\" = +7\n"
      "flag = true\n"
      "text = \"a \\\"b\\\" \\\\ \\u00e9 \\U0001F600 # no comment\"\n"
      "literal = 'C:\\x'\n"
      "list = [ \"a\", 'b', # comment\n  \"c\",\n]\n"
      "none = []",
      "f");
  ASSERT_EQ(entries.size(), 9u);
  EXPECT_EQ(entries[0].table, "");
  EXPECT_EQ(entries[1].table, "train");
  EXPECT_EQ(entries[1].values, std::vector<std::string>{"1000"});
  EXPECT_EQ(entries[1].line, 4);
  EXPECT_EQ(entries[2].values, std::vector<std::string>{"3e-4"});
  EXPECT_EQ(entries[3].key, "seq-len");
  EXPECT_EQ(entries[3].values, std::vector<std::string>{"7"});
  EXPECT_EQ(entries[4].values, std::vector<std::string>{"true"});
  EXPECT_EQ(entries[5].values, std::vector<std::string>{"a \"b\" \\ é 😀 # no comment"});
  EXPECT_EQ(entries[6].values, std::vector<std::string>{"C:\\x"});
  EXPECT_EQ(entries[7].values, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(entries[8].values.empty());
  // The mark that some editors put before the text.
  EXPECT_EQ(parse_toml("\xef\xbb\xbf[t]\na = 1\n", "f").at(0).table, "t");
}

TEST(Toml, RefusesTheRestByLine) {
  for (const char* text : {"\na", "\na =", "\na = b", "\na = 1 2", "\n[t", "\n[t] x", "\n[[t]]",
                           "\na.b = 1", "\na = \"x", "\na = \"\\q\"", "\na = \"\\ud800\"",
                           "\na = [1", "\na = [1 2]", "\na = {}", "\na = \"\"\"x\"\"\"", "\n= 1"}) {
    try {
      parse_toml(text, "some.toml");
      ADD_FAILURE() << text << " was read";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("some.toml line "), std::string::npos);
    }
  }
  EXPECT_THROW(parse_toml("a = 1\na = 2", "f"), UserError);
  EXPECT_THROW(parse_toml("[t]\n[t]", "f"), UserError);
}

TEST(Toml, StringsComeBack) {
  std::string all = "é\"\\'#[] ";
  for (char c = 1; c > 0; ++c) all += c;
  const auto entries = parse_toml("a = " + toml_string(all), "f");
  EXPECT_EQ(entries.at(0).values.at(0), all);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("megatrain_options_" + std::string(test->name()) + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(Files, EveryOptionOfTheTableComesBackFromItsOwnFile) {
  RunOptions written;
  const std::vector<Option> table = train_table(written);
  // Something in every field that differs from its default.
  for (const Option& option : table) {
    if (!option.in_file) continue;
    const double most = option.below.value_or(option.most.value_or(3));
    std::string value = most < 3 ? "0.5" : "3";
    if (!option.allowed.empty()) value = option.allowed.back();
    if (is_flag(option)) value = "true";
    const std::vector<std::string> values =
        is_list(option) ? std::vector<std::string>{"a b", "\"c\""} : std::vector{value};
    set(option, values, option.name);
  }
  const std::string text = format_config(table, {"a note"});
  write_text(folder_ / "config.toml", text);
  RunOptions read;
  const std::vector<Option> again = train_table(read);
  read_config((folder_ / "config.toml").string(), again, [](const Option&) { return false; });
  EXPECT_EQ(format_config(again, {"a note"}), text);
  EXPECT_EQ(read.force, (std::vector<std::string>{"a b", "\"c\""}));
  EXPECT_EQ(read.machine.device_memory, ByteCount{3});
  EXPECT_EQ(read.slots, 3);
  EXPECT_TRUE(read.machine.deterministic);
  // And what is not set stays so.
  RunOptions fresh;
  write_text(folder_ / "default.toml", format_config(train_table(fresh), {}));
  RunOptions same;
  read_config((folder_ / "default.toml").string(), train_table(same),
              [](const Option&) { return false; });
  EXPECT_EQ(format_config(train_table(same), {}), format_config(train_table(fresh), {}));
  EXPECT_FALSE(same.slots.has_value());
}

TEST_F(Files, TheCommandLineWins) {
  write_text(folder_ / "c.toml", "[train]\nsteps = 5\nlr = 0.5\n");
  RunOptions options;
  read_config((folder_ / "c.toml").string(), train_table(options),
              [](const Option& option) { return option.name == "steps"; });
  EXPECT_EQ(options.steps, 1000);
  EXPECT_EQ(options.lr, 0.5);
}

TEST_F(Files, AKeyFixesItsChoicesAndNamesWhatDiffers) {
  write_text(folder_ / "k", "device = x\ncompute = fp32\nmicro-batch = 2\nattention = own\n");
  const SavedKey key = read_key((folder_ / "k").string());
  const auto forced = key.forced();
  ASSERT_EQ(forced.size(), 2u);
  EXPECT_EQ(forced[0], (std::pair<std::string, std::string>{"micro-batch", "2"}));
  EXPECT_NO_THROW(
      key.require_equal("device = x\ncompute = fp32\nmicro-batch = 2\nattention = own\n", true));
  EXPECT_NO_THROW(
      key.require_equal("device = \ncompute = fp32\nmicro-batch = 2\nattention = own\n", false));
  try {
    key.require_equal("device = x\ncompute = bf16\nmicro-batch = 2\nworld = 1\n", true);
    ADD_FAILURE() << "different keys count as equal";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("compute: fp32 there, bf16 here"), std::string::npos) << text;
    EXPECT_NE(text.find("attention: own there, missing here"), std::string::npos) << text;
    EXPECT_NE(text.find("world: missing there, 1 here"), std::string::npos) << text;
    EXPECT_EQ(text.find("micro-batch"), std::string::npos) << text;
  }
  // Keys that were saved before there was a choice are those of fp32 states.
  const std::string old = "device = x\ncompute = fp32\nmicro-batch = 2\nattention = own\n";
  EXPECT_NO_THROW(key.require_equal(old + "moments = fp32\n", true));
  EXPECT_THROW(key.require_equal(old + "moments = bf16\n", true), UserError);
  EXPECT_THROW(key.require_equal(old + "masters = bf16\n", true), UserError);
  SavedKey accepts = key;
  accepts.free = {"moments"};
  EXPECT_NO_THROW(accepts.require_equal(old + "moments = bf16\n", true));
  write_text(folder_ / "no key", "hello\n");
  EXPECT_THROW(read_key((folder_ / "no key").string()), UserError);
}

}  // namespace
}  // namespace megatrain::launcher
