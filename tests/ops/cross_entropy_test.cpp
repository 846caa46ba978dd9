#include <algorithm>
#include <cmath>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

using ops::CrossEntropy;

struct Shape {
  Index tokens, vocabulary, stride;
};

class CrossEntropyTest : public OpTest {
 protected:
  /// Some targets at the ends of the vocabulary, some that do not count.
  static std::vector<std::int32_t> targets(const Shape& s) {
    auto out = random_ids(s.tokens, 2, static_cast<std::int32_t>(s.vocabulary));
    for (std::size_t t = 0; t < out.size(); t += 3) out[t] = t % 2 == 0 ? -100 : -1;
    if (out.size() > 2) out[1] = static_cast<std::int32_t>(s.vocabulary) - 1;
    if (out.size() > 2) out[2] = 0;
    return out;
  }

  CrossEntropy op_on(const Shape& s, Buffer& logits, Buffer& targets_on, Buffer& losses) const {
    return {.tokens = s.tokens,
            .vocabulary = s.vocabulary,
            .stride = s.stride,
            .type = type(),
            .logits = logits.data(),
            .targets = targets_on.as<std::int32_t>(),
            .losses = losses.as<float>(),
            .gradient = true,
            .scale = 0.125F};
  }
};

TEST_P(CrossEntropyTest, loss_and_gradient) {
  for (const Shape& s : {Shape{1, 1, 1}, Shape{2, 2, 2}, Shape{7, 33, 40}, Shape{20, 1000, 1008},
                         Shape{5, 50257, 50304}}) {
    SCOPED_TRACE(testing::Message() << s.tokens << "x" << s.vocabulary);
    Buffer logits = bench().input(type(), random_values(s.tokens * s.stride, 1, 8));
    const auto target = targets(s);
    Buffer target_buffer = bench().input_raw(target);
    Buffer losses = bench().output(DType::f32, s.tokens);
    const Values before = logits.values();
    Values want = before;  // the padding stays
    Values want_losses;
    for (Index t = 0; t < s.tokens; ++t) {
      const auto row = static_cast<std::size_t>(t * s.stride);
      const Index id = target[static_cast<std::size_t>(t)];
      double sum = 0;
      for (std::size_t c = 0; c < static_cast<std::size_t>(s.vocabulary); ++c)
        sum += std::exp(before[row + c]);
      want_losses.push_back(id < 0 ? 0.0
                                   : std::log(sum) - before[row + static_cast<std::size_t>(id)]);
      for (Index c = 0; c < s.vocabulary; ++c) {
        const std::size_t at = row + static_cast<std::size_t>(c);
        want[at] = id < 0 ? 0.0 : 0.125 * (std::exp(before[at]) / sum - (c == id ? 1.0 : 0.0));
      }
    }
    CrossEntropy op = op_on(s, logits, target_buffer, losses);
    // Without the gradient: the same losses, logits untouched.
    op.gradient = false;
    bench().run(op);
    EXPECT_LT(relative_error(losses.values(), want_losses), tolerance(DType::f32));
    EXPECT_EQ(logits.values(), before);
    const Bytes losses_alone = losses.bytes();
    losses.poison();
    op.gradient = true;
    bench().run(op);
    EXPECT_TRUE(same_bits(losses.bytes(), losses_alone));
    const Values after = logits.values();
    Values gradient;
    Values want_gradient;
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (static_cast<Index>(i) % s.stride < s.vocabulary) {
        gradient.push_back(after[i]);
        want_gradient.push_back(want[i]);
      } else {
        ASSERT_EQ(after[i], before[i]) << "padding";
      }
    }
    EXPECT_LT(relative_error(gradient, want_gradient), tolerance(type()));
  }
}

/// Divided, the parts' losses are those of the whole, and their gradients its columns.
TEST_P(CrossEntropyTest, parts_of_a_vocabulary) {
  const Shape s{20, 1000, 1008};
  const Values all = random_values(s.tokens * s.stride, 1, 8);
  const auto target = targets(s);
  Buffer target_buffer = bench().input_raw(target);
  Buffer whole = bench().input(type(), all);
  Buffer whole_losses = bench().output(DType::f32, s.tokens);
  bench().run(op_on(s, whole, target_buffer, whole_losses));
  const Values want = whole.values();

  for (const Index parts : {2, 3, 7}) {
    SCOPED_TRACE(parts);
    const Index share = (s.vocabulary + parts - 1) / parts;
    const Index pitch = share + 3;
    const auto ids_of = [&](Index part) {
      return std::clamp<Index>(s.vocabulary - part * share, 0, share);
    };
    std::vector<Buffer> logits;
    Buffer statistics = bench().output(DType::f32, parts * ops::kLogitStatistics * s.tokens);
    for (Index part = 0; part < parts; ++part) {
      // Columns beyond the vocabulary would win if they were looked at.
      Values own(static_cast<std::size_t>(s.tokens * pitch), 100.0);
      for (Index t = 0; t < s.tokens; ++t)
        for (Index c = 0; c < ids_of(part); ++c)
          own[static_cast<std::size_t>(t * pitch + c)] =
              all[static_cast<std::size_t>(t * s.stride + part * share + c)];
      logits.push_back(bench().input(type(), own));
      bench().run(ops::LogitStatistics{
          .tokens = s.tokens,
          .vocabulary = ids_of(part),
          .stride = pitch,
          .first = part * share,
          .type = type(),
          .logits = logits.back().data(),
          .targets = target_buffer.as<std::int32_t>(),
          .statistics = statistics.as<float>() + part * ops::kLogitStatistics * s.tokens});
    }
    Bytes first_losses;
    for (Index part = 0; part < parts; ++part) {
      Buffer losses = bench().output(DType::f32, s.tokens);
      Buffer& own = logits[static_cast<std::size_t>(part)];
      bench().run(ops::CrossEntropyOfPart{.tokens = s.tokens,
                                          .vocabulary = ids_of(part),
                                          .stride = pitch,
                                          .columns = share,
                                          .first = part * share,
                                          .type = type(),
                                          .logits = own.data(),
                                          .targets = target_buffer.as<std::int32_t>(),
                                          .parts = parts,
                                          .statistics = statistics.as<float>(),
                                          .losses = losses.as<float>(),
                                          .gradient = true,
                                          .scale = 0.125F});
      EXPECT_LT(relative_error(losses.values(), whole_losses.values()), tolerance(DType::f32));
      if (part == 0) first_losses = losses.bytes();
      EXPECT_TRUE(same_bits(losses.bytes(), first_losses));
      Values gradient;
      Values want_gradient;
      const Values after = own.values();
      for (Index t = 0; t < s.tokens; ++t)
        for (Index c = 0; c < pitch; ++c) {
          const double value = after[static_cast<std::size_t>(t * pitch + c)];
          if (c >= ids_of(part)) {
            EXPECT_EQ(value, c < share ? 0 : 100) << "padding";
            continue;
          }
          gradient.push_back(value);
          want_gradient.push_back(want[static_cast<std::size_t>(t * s.stride + part * share + c)]);
        }
      if (!gradient.empty()) {
        EXPECT_LT(relative_error(gradient, want_gradient), tolerance(type()));
      }
    }
  }
}

TEST_P(CrossEntropyTest, large_and_infinite_logits) {
  const Shape s{4, 5, 5};
  const double inf = HUGE_VAL;
  Buffer logits = bench().input(type(), {1e4,  -1e4, 0,   0, 0,    // certain and right
                                         1e4,  -1e4, 0,   0, 0,    // certain and wrong
                                         -inf, 1,    1,   1, 1,    // one id masked out
                                         0,    1,    NAN, 1, 1});  // poisoned
  Buffer target = bench().input_raw(std::vector<std::int32_t>{0, 1, 2, 3});
  Buffer losses = bench().output(DType::f32, s.tokens);
  bench().run(op_on(s, logits, target, losses));
  const Values loss = losses.values();
  const Values gradient = logits.values();
  EXPECT_EQ(loss[0], 0);
  EXPECT_NEAR(loss[1], type() == DType::f32 ? 2e4 : 2 * 9984.0, 1);
  EXPECT_NEAR(loss[2], std::log(4.0), 1e-5);
  EXPECT_TRUE(std::isnan(loss[3]));
  EXPECT_EQ(gradient[0], 0);
  EXPECT_EQ(gradient[5], 0.125);
  EXPECT_EQ(gradient[6], -0.125);
  EXPECT_EQ(gradient[10], 0);
  EXPECT_TRUE(std::isnan(gradient[15]));
}

TEST_P(CrossEntropyTest, same_bits_for_every_thread_count) {
  const Shape s{50, 3001, 3008};
  expect_reproducible([&](OpBench& on) {
    Buffer logits = on.input(type(), random_values(s.tokens * s.stride, 1, 5));
    Buffer target = on.input_raw(targets(s));
    Buffer losses = on.output(DType::f32, s.tokens);
    on.run(op_on(s, logits, target, losses));
    Bytes all = logits.bytes();
    const Bytes more = losses.bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  });
}

TEST_P(CrossEntropyTest, a_target_beyond_the_vocabulary_is_an_error_on_the_cpu) {
  if (GetParam().device != DeviceKind::cpu) GTEST_SKIP() << "the CPU's check";
  const Shape s{1, 4, 4};
  Buffer logits = bench().input(type(), Values(4, 1.0));
  Buffer target = bench().input_raw(std::vector<std::int32_t>{4});
  Buffer losses = bench().output(DType::f32, 1);
  const CrossEntropy op = op_on(s, logits, target, losses);
  OpBench aside(DeviceKind::cpu, type());  // its stream fails; this test's stays whole
  EXPECT_THROW(aside.run(op), LogicError);
}

INSTANTIATE_TEST_SUITE_P(Ops, CrossEntropyTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
