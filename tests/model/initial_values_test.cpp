#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/model/model.h"

namespace megatrain::modeltest {

namespace {

ParamDesc normal_param(std::string name, double std_deviation = 0.02) {
  return {.name = std::move(name),
          .shape = {1000, 1001},
          .init = Init::normal,
          .init_std = std_deviation};
}

std::vector<float> values(const ParamDesc& param, std::uint64_t seed, Index first, Index count) {
  std::vector<float> out(static_cast<std::size_t>(count), std::nanf(""));
  initial_values(param, seed, first, out);
  return out;
}

/// The correlation of two sequences of mean 0.
double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  const double ab = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  return ab / std::sqrt(aa * bb);
}

}  // namespace

TEST(InitialValues, do_not_depend_on_slicing) {
  const ParamDesc param = normal_param("w");
  const std::vector<float> whole = values(param, 7, 0, 1000);
  for (const Index first : {Index{0}, Index{1}, Index{500}, Index{511}, Index{999}}) {
    for (const Index count : {Index{1}, Index{2}, Index{3}, Index{489}}) {
      if (first + count > 1000) continue;
      const auto begin = whole.begin() + first;
      EXPECT_EQ(values(param, 7, first, count), std::vector<float>(begin, begin + count))
          << first << " + " << count;
    }
  }
}

TEST(InitialValues, are_normal) {
  constexpr Index kCount = 1'000'000;
  const std::vector<float> v = values(normal_param("w", 0.5), 1, 0, kCount);
  std::vector<double> moments(5);
  for (const float x : v)
    for (std::size_t k = 1; k < moments.size(); ++k) moments[k] += std::pow(x / 0.5, double(k));
  for (double& moment : moments) moment /= double(kCount);
  EXPECT_NEAR(moments[1], 0, 5e-3);
  EXPECT_NEAR(moments[2], 1, 1e-2);
  EXPECT_NEAR(moments[3], 0, 2e-2);
  EXPECT_NEAR(moments[4], 3, 5e-2);
  // Beyond one, two and three standard deviations.
  const auto beyond = [&](double limit) {
    return double(std::ranges::count_if(v, [&](float x) { return std::abs(x) > 0.5 * limit; })) /
           double(kCount);
  };
  EXPECT_NEAR(beyond(1), 0.3173, 2e-3);
  EXPECT_NEAR(beyond(2), 0.0455, 1e-3);
  EXPECT_NEAR(beyond(3), 0.0027, 3e-4);
}

TEST(InitialValues, seeds_names_and_neighbours_are_independent) {
  constexpr Index kCount = 200'000;
  const std::vector<float> base = values(normal_param("a"), 1, 0, kCount);
  EXPECT_NEAR(correlation(base, values(normal_param("a"), 2, 0, kCount)), 0, 0.01);
  EXPECT_NEAR(correlation(base, values(normal_param("b"), 1, 0, kCount)), 0, 0.01);
  for (const Index shift : {1, 2, 1001})
    EXPECT_NEAR(correlation(base, values(normal_param("a"), 1, shift, kCount)), 0, 0.01) << shift;
}

TEST(InitialValues, reach_beyond_2_to_the_32_elements) {
  const Index far = (Index{1} << 33) + 5;
  EXPECT_NE(values(normal_param("w"), 1, far, 8), values(normal_param("w"), 1, 5, 8));
}

TEST(InitialValues, norms_are_one_and_biases_zero) {
  ParamDesc param = normal_param("w");
  param.init = Init::ones;
  EXPECT_EQ(values(param, 1, 3, 5), std::vector<float>(5, 1.0F));
  param.init = Init::zeros;
  EXPECT_EQ(values(param, 1, 3, 5), std::vector<float>(5, 0.0F));
}

}  // namespace megatrain::modeltest
