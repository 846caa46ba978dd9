#include "core/train/batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

Choices small_choices(EmbeddingMode embedding) {
  Choices choices = plan_grid().front().choices;
  choices.micro_batch = {2, 5};
  choices.micro_batches = 3;
  choices.waves = 2;
  choices.embedding = embedding;
  return choices;
}

std::vector<std::int32_t> made_up(const Choices& choices) {
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(choices.step_sequences() * (choices.micro_batch.sequence + 1)));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 11);
  tokens[3] = -1;
  return tokens;
}

TEST(Batch, TargetsAreTheNextTokens) {
  const Choices choices = small_choices(EmbeddingMode::table);
  const auto tokens = made_up(choices);
  const Batch batch = make_batch(choices, grid_config(false), tokens);
  const BatchLayout layout{10};
  const Index stride = layout.bytes() / 4;
  Index valid = 0;
  for (Index s = 0; s < 6; ++s)
    for (Index t = 0; t < 5; ++t) {
      const Index place = s / 2 * stride + s % 2 * 5 + t;
      const std::int32_t token = tokens[static_cast<std::size_t>(s * 6 + t)];
      const std::int32_t target = tokens[static_cast<std::size_t>(s * 6 + t + 1)];
      EXPECT_EQ(batch.tokens[static_cast<std::size_t>(place)], std::max(token, 0));
      EXPECT_EQ(batch.tokens[static_cast<std::size_t>(place + layout.targets())], target);
      valid += target >= 0 ? 1 : 0;
    }
  EXPECT_EQ(batch.valid_tokens, valid);
  EXPECT_EQ(batch.valid_tokens, 29);
  EXPECT_FLOAT_EQ(batch.inputs.scale, 1.0F / 29.0F);
}

TEST(Batch, SortedTokensCoverEachIdOnce) {
  const Choices choices = small_choices(EmbeddingMode::table);
  const Batch batch = make_batch(choices, grid_config(false), made_up(choices));
  const BatchLayout layout{10};
  for (Index m = 0; m < 3; ++m) {
    const std::int32_t* part = batch.tokens.data() + m * layout.bytes() / 4;
    const Index uniques = batch.inputs.uniques[static_cast<std::size_t>(m)];
    std::set<std::int32_t> seen;
    for (Index u = 0; u < uniques; ++u) {
      const std::int32_t id = part[layout.unique() + u];
      EXPECT_TRUE(seen.insert(id).second);
      for (std::int32_t i = part[layout.begins() + u]; i < part[layout.begins() + u + 1]; ++i) {
        const std::int32_t token = part[layout.order() + i];
        EXPECT_EQ(part[layout.ids() + token], id);
        if (i > part[layout.begins() + u]) {
          EXPECT_LT(part[layout.order() + i - 1], token) << "stable order";
        }
      }
    }
    EXPECT_EQ(part[layout.begins() + uniques], 10);
  }
}

TEST(Batch, GatheredRowsAreThoseOfTheWave) {
  const Choices choices = small_choices(EmbeddingMode::rows);
  const Batch rows = make_batch(choices, grid_config(false), made_up(choices));
  const Batch table =
      make_batch(small_choices(EmbeddingMode::table), grid_config(false), made_up(choices));
  const BatchLayout layout{10};
  ASSERT_EQ(rows.inputs.rows.size(), 2u);
  for (Index m = 0; m < 3; ++m) {
    const auto& wave = rows.inputs.rows[m < choices.wave_begin(1) ? 0 : 1];
    for (Index t = 0; t < 10; ++t) {
      const auto place = static_cast<std::size_t>(m * layout.bytes() / 4 + t);
      EXPECT_EQ(wave[static_cast<std::size_t>(rows.tokens[place])], table.tokens[place]);
    }
  }
}

TEST(Batch, NothingToLearnFromIsNoDivisionByZero) {
  const Choices choices = small_choices(EmbeddingMode::table);
  const std::vector<std::int32_t> tokens(36, -1);
  const Batch batch = make_batch(choices, grid_config(false), tokens);
  EXPECT_EQ(batch.valid_tokens, 0);
  EXPECT_EQ(batch.inputs.scale, 0.0F);
}

}  // namespace
}  // namespace megatrain::testing
