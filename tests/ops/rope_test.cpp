#include <cmath>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::Rope;

struct Shape {
  Index tokens, sequence, heads, head_dim, token_stride;
};

class RopeTest : public OpTest {
 protected:
  static std::vector<float> table(const Shape& s, bool cosine) {
    std::vector<float> values;
    for (Index position = 0; position < s.sequence; ++position)
      for (Index i = 0; i < s.head_dim / 2; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
        values.push_back(static_cast<float>(1.1 * (cosine ? std::cos(angle) : std::sin(angle))));
      }
    return values;
  }

  static Values reference(const Shape& s, Values x, bool inverse) {
    const auto cosine = table(s, true);
    const auto sine = table(s, false);
    const Index half = s.head_dim / 2;
    for (Index t = 0; t < s.tokens; ++t)
      for (Index h = 0; h < s.heads; ++h)
        for (Index i = 0; i < half; ++i) {
          const auto first = static_cast<std::size_t>(t * s.token_stride + h * s.head_dim + i);
          const std::size_t second = first + static_cast<std::size_t>(half);
          const auto at = static_cast<std::size_t>(t % s.sequence * half + i);
          const auto c = static_cast<double>(cosine[at]);
          const double sn = (inverse ? -1 : 1) * static_cast<double>(sine[at]);
          const double a = x[first];
          const double b = x[second];
          x[first] = a * c - b * sn;
          x[second] = b * c + a * sn;
        }
    return x;
  }
};

TEST_P(RopeTest, rotates_in_place) {
  for (const Shape& s : {Shape{1, 1, 1, 2, 2}, Shape{10, 5, 3, 6, 31}, Shape{34, 17, 2, 64, 200},
                         Shape{9, 9, 1, 80, 80}, Shape{130, 65, 5, 32, 161}}) {
    for (const bool inverse : {false, true}) {
      Buffer x = bench().input(type(), random_values(s.tokens * s.token_stride, 1));
      Buffer cosine = bench().input_raw(table(s, true));
      Buffer sine = bench().input_raw(table(s, false));
      const Values before = x.values();
      bench().run(Rope{.tokens = s.tokens,
                       .sequence = s.sequence,
                       .heads = s.heads,
                       .head_dim = s.head_dim,
                       .token_stride = s.token_stride,
                       .type = type(),
                       .x = x.data(),
                       .cosine = cosine.as<float>(),
                       .sine = sine.as<float>(),
                       .inverse = inverse});
      const Values after = x.values();
      EXPECT_LT(relative_error(after, reference(s, before, inverse)), tolerance(type()));
      // What lies between the tokens' heads is not touched.
      for (Index i = 0; i < s.tokens * s.token_stride; ++i) {
        const bool in_head = i % s.token_stride < s.heads * s.head_dim;
        const auto at = static_cast<std::size_t>(i);
        ASSERT_TRUE(in_head || after[at] == before[at]) << i;
      }
    }
  }
}

TEST_P(RopeTest, same_bits_for_every_thread_count) {
  const Shape s{600, 300, 4, 32, 140};
  expect_reproducible([&](OpBench& on) {
    Buffer x = on.input(type(), random_values(s.tokens * s.token_stride, 1));
    Buffer cosine = on.input_raw(table(s, true));
    Buffer sine = on.input_raw(table(s, false));
    on.run(Rope{.tokens = s.tokens,
                .sequence = s.sequence,
                .heads = s.heads,
                .head_dim = s.head_dim,
                .token_stride = s.token_stride,
                .type = type(),
                .x = x.data(),
                .cosine = cosine.as<float>(),
                .sine = sine.as<float>()});
    return x.bytes();
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, RopeTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
