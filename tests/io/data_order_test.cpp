#include "core/train/data_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace megatrain {
namespace {

std::vector<Index> epoch(std::uint64_t seed, Index number, Index samples) {
  std::vector<Index> order;
  for (Index i = 0; i < samples; ++i)
    order.push_back(sample_at(seed, number * samples + i, samples));
  return order;
}

TEST(DataOrder, EachEpochIsAPermutation) {
  for (const Index samples : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097})
    for (const Index number : {0, 1, 5}) {
      std::vector<Index> order = epoch(7, number, samples);
      std::sort(order.begin(), order.end());
      for (Index i = 0; i < samples; ++i)
        ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << samples << " samples, epoch " << number;
    }
}

TEST(DataOrder, EpochsAndSeedsDiffer) {
  const auto first = epoch(7, 0, 1000);
  EXPECT_EQ(first, epoch(7, 0, 1000));
  EXPECT_NE(first, epoch(7, 1, 1000));
  EXPECT_NE(first, epoch(8, 0, 1000));
  // Few places agree by chance: 1 on average, far below this bound.
  const auto second = epoch(7, 1, 1000);
  Index same = 0;
  for (std::size_t i = 0; i < 1000; ++i) same += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(same, 12);
}

TEST(DataOrder, LooksShuffled) {
  // Neighbours in the order are as far apart as independent draws are: n / 3 on average.
  constexpr Index kSamples = 10'000;
  const auto order = epoch(1, 0, kSamples);
  double distance = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    distance += std::abs(static_cast<double>(order[i] - order[i - 1]));
  EXPECT_NEAR(distance / kSamples, kSamples / 3.0, kSamples * 0.02);
}

TEST(DataOrder, LargeCountsStayInRange) {
  constexpr Index kMany = (Index{1} << 40) + 3;
  for (Index i = 0; i < 1000; ++i) {
    const Index sample = sample_at(3, i * 1'000'000'007, kMany);
    ASSERT_GE(sample, 0);
    ASSERT_LT(sample, kMany);
  }
  constexpr Index kMost = std::numeric_limits<Index>::max();
  EXPECT_GE(sample_at(3, kMost, kMost), 0);
}

}  // namespace
}  // namespace megatrain
