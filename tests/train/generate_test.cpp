#include "core/train/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace megatrain::testing {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, -1.0F};

TEST(SampleToken, ZeroTemperatureTakesTheLikeliest) {
  SamplingOptions options;
  options.temperature = 0;
  for (Index i = 0; i < 20; ++i) EXPECT_EQ(sample_token(kLogits, options, i), 1);
}

TEST(SampleToken, FrequenciesFollowTheSoftmax) {
  SamplingOptions options;
  options.temperature = 1;
  std::map<std::int32_t, double> counts;
  constexpr Index kDraws = 40000;
  for (Index i = 0; i < kDraws; ++i) counts[sample_token(kLogits, options, i)] += 1.0 / kDraws;
  double total = 0;
  for (const float logit : kLogits) total += std::exp(static_cast<double>(logit));
  for (std::int32_t id = 0; id < 4; ++id)
    EXPECT_NEAR(counts[id],
                std::exp(static_cast<double>(kLogits[static_cast<std::size_t>(id)])) / total, 0.01);
}

TEST(SampleToken, TopKAndNucleusCutTheTail) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  for (Index i = 0; i < 500; ++i) {
    const std::int32_t id = sample_token(kLogits, options, i);
    EXPECT_TRUE(id == 1 || id == 2);
  }
  options.top_k = 0;
  options.top_p = 0.5;  // the likeliest alone holds 0.64
  for (Index i = 0; i < 500; ++i) EXPECT_EQ(sample_token(kLogits, options, i), 1);
}

TEST(SampleToken, IsAFunctionOfSeedAndPosition) {
  SamplingOptions a;
  a.temperature = 1;
  SamplingOptions b = a;
  b.seed = 1;
  bool differs = false;
  for (Index i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_token(kLogits, a, i), sample_token(kLogits, a, i));
    differs |= sample_token(kLogits, a, i) != sample_token(kLogits, b, i);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace megatrain::testing
