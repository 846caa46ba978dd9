/// Rotary tables against those of transformers (tests/golden/make_goldens.py writes rope.txt).

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/model/config.h"
#include "tests/model/test_configs.h"

namespace megatrain::modeltest {

namespace {

/// Reads the rest of a "table" line of rope.txt.
class TableLine {
 public:
  explicit TableLine(std::istringstream& line) : line_(line) {}
  std::string word() {
    std::string text;
    line_ >> text;
    return text;
  }
  std::optional<double> maybe() {
    const std::string text = word();
    return text == "-" ? std::nullopt : std::optional(std::stod(text));
  }
  double number(double otherwise) { return maybe().value_or(otherwise); }

 private:
  std::istringstream& line_;
};

RopeKind kind_of(const std::string& name) {
  static const std::map<std::string, RopeKind> kinds = {{"default", RopeKind::plain},
                                                        {"linear", RopeKind::linear},
                                                        {"llama3", RopeKind::llama3},
                                                        {"yarn", RopeKind::yarn}};
  return kinds.at(name);
}

}  // namespace

TEST(RopeTables, equal_those_of_transformers) {
  std::ifstream file(MEGATRAIN_GOLDEN_DATA "/rope.txt");
  ASSERT_TRUE(file) << "tests/golden/data/rope.txt is missing; make_goldens.py makes it";
  std::set<std::string> seen;
  std::string text;
  std::getline(file, text);
  while (std::getline(file, text)) {
    std::istringstream line(text);
    TableLine table(line);
    ASSERT_EQ(table.word(), "table");
    const std::string name = table.word();
    ModelConfig config = small_llama();
    config.head_dim = static_cast<Index>(table.number(0));
    config.max_positions = static_cast<Index>(table.number(0));
    const RopeConfig none;
    config.rope.kind = kind_of(table.word());
    config.rope.theta = table.number(none.theta);
    config.rope.factor = table.number(none.factor);
    config.rope.low_freq_factor = table.number(none.low_freq_factor);
    config.rope.high_freq_factor = table.number(none.high_freq_factor);
    config.rope.original_max_positions = static_cast<Index>(table.number(0));
    config.rope.beta_fast = table.number(none.beta_fast);
    config.rope.beta_slow = table.number(none.beta_slow);
    config.rope.attention_factor = table.maybe();
    config.rope.mscale = table.maybe();
    config.rope.mscale_all_dim = table.maybe();
    config.rope.truncate = table.number(1) != 0;
    const auto rows = static_cast<int>(table.number(0));
    SCOPED_TRACE(name);
    seen.insert(name);
    validate(config);

    const RopeTables tables = rope_tables(config, 1001);
    const Index half = config.head_dim / 2;
    for (int row = 0; row < rows; ++row) {
      ASSERT_TRUE(std::getline(file, text));
      std::istringstream numbers(text);
      Index position = 0;
      numbers >> position;
      // transformers rounds frequencies to fp32 before it multiplies by the position.
      const double tolerance = 3e-7 * double(1 + position);
      for (const auto* values : {&tables.cosine, &tables.sine}) {
        for (Index i = 0; i < half; ++i) {
          double expected = 0;
          ASSERT_TRUE(numbers >> expected);
          ASSERT_NEAR((*values)[static_cast<std::size_t>(position * half + i)], expected, tolerance)
              << "position " << position << " pair " << i;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 14U);
}

TEST(RopeTables, have_a_row_for_every_position) {
  const ModelConfig config = small_llama();
  EXPECT_EQ(rope_tables(config, 9).cosine.size(), 9U * 3U);
  EXPECT_EQ(rope_tables(config, 9).sine.size(), 9U * 3U);
  EXPECT_TRUE(rope_tables(small_gpt2(), 9).cosine.empty());
}

TEST(RopeTables, an_unknown_original_length_is_the_models) {
  ModelConfig config = small_llama();
  config.rope = {.kind = RopeKind::yarn, .theta = 1e4, .factor = 4, .original_max_positions = 32};
  const RopeTables given = rope_tables(config, 5);
  config.rope.original_max_positions = 0;
  EXPECT_EQ(rope_tables(config, 5).cosine, given.cosine);
}

}  // namespace megatrain::modeltest
