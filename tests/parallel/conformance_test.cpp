// The conformance kit accepts what conforms, and refuses, by name, each way not to.

#include "parallel/conformance/conformance.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "core/device/cpu/cpu_device.h"
#include "parallel/conformance/training.h"
#include "tests/model/test_configs.h"

namespace megatrain::conformance {
namespace {

constexpr Index kCount = 30;

/// The message of a check that must fail.
template <class Check>
std::string refusal(const Check& check) {
  try {
    check();
  } catch (const ConformanceError& error) {
    return error.what();
  }
  return "nothing was refused";
}

void expect_contains(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "'" << words << "' is missing: " << text;
}

ConjugatePair gather_and_scatter(int size) {
  return {.name = "all_gather and reduce_scatter",
          .axis = Axis::tensor,
          .input = {.count = kCount},
          .output = {.count = kCount * size},
          .forward =
              [](Rank& rank, const float* from, float* to) {
                rank.along(Axis::tensor).all_gather(rank.stream(), from, to, kCount, DType::f32);
              },
          .backward =
              [](Rank& rank, const float* from, float* to) {
                rank.along(Axis::tensor).reduce_scatter(rank.stream(), from, to, kCount);
              }};
}

void copy(Rank& rank, const float* from, float* to) { rank.stream().copy(to, from, kCount * 4); }

void copy_and_all_reduce(Rank& rank, const float* from, float* to) {
  copy(rank, from, to);
  rank.along(Axis::tensor).all_reduce(rank.stream(), to, kCount);
}

/// What enters a column-parallel linear, and what leaves a row-parallel one.
ConjugatePair copy_then_reduce() {
  return {.name = "copy and all_reduce",
          .axis = Axis::tensor,
          .input = {.count = kCount, .replicated = true},
          .output = {.count = kCount},
          .forward = copy,
          .backward = copy_and_all_reduce};
}

ConjugatePair reduce_then_copy() {
  return {.name = "all_reduce and copy",
          .axis = Axis::tensor,
          .input = {.count = kCount},
          .output = {.count = kCount, .replicated = true},
          .forward = copy_and_all_reduce,
          .backward = copy};
}

class Conformance : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Values(1, 2, 3, 4));

TEST_P(Conformance, TheCollectivesAreConjugatePairs) {
  const Setting setting = along(Axis::tensor, GetParam());
  check_conjugate(setting, gather_and_scatter(GetParam()));
  check_conjugate(setting, copy_then_reduce());
  check_conjugate(setting, reduce_then_copy());
}

TEST_P(Conformance, AMeanOverARanksShareIsEqualToOne) {
  // Each rank sums its share of 240 numbers exactly; all agree.
  const auto function = [](Rank& rank) {
    Communicator& data = rank.along(Axis::data);
    const int share = 240 / data.size();
    float sum = 0;
    for (int i = 0; i < share; ++i) sum += static_cast<float>(data.rank() * share + i);
    std::vector<float> result{sum, 7.0F};
    data.all_reduce(rank.stream(), result.data(), 1);
    rank.stream().synchronize();
    return result;
  };
  check_equal_to_one(along(Axis::data, GetParam()), function, 0);
}

TEST(ConformanceGrid, LinesOfEveryAxisWorkTogether) {
  PerAxis<int> sizes(1);
  sizes[Axis::data] = 2;
  sizes[Axis::tensor] = 2;
  const Setting setting{.axes = ProcessAxes(sizes)};
  check_conjugate(setting, gather_and_scatter(2));
  check_conjugate(setting, copy_then_reduce());
  const auto calls = run_ranks(setting, [](Rank& rank) {
    float x = static_cast<float>(rank.rank());
    rank.along(Axis::tensor).all_reduce(rank.stream(), &x, 1);
    rank.stream().synchronize();
    const auto other = rank.device().make_stream("data");
    rank.along(Axis::data).all_reduce(*other, &x, 1);
    other->synchronize();
    EXPECT_EQ(x, 6.0F);
    EXPECT_EQ(rank.along(Axis::pipeline).size(), 1);
  });
  for (const Calls& own : calls) {
    EXPECT_EQ(own[Axis::tensor].size(), 1U);
    EXPECT_EQ(own[Axis::data].size(), 1U);
    EXPECT_TRUE(own[Axis::pipeline].empty());
  }
}

TEST(ConformanceRefuses, WhatIsNotConjugate) {
  const Setting two = along(Axis::tensor, 2);
  ConjugatePair forgotten = reduce_then_copy();
  forgotten.backward = copy_and_all_reduce;
  expect_contains(refusal([&] { check_conjugate(two, forgotten); }),
                  "all_reduce and copy is not a conjugate pair");

  ConjugatePair scaled = gather_and_scatter(2);
  scaled.backward = [](Rank& rank, const float* from, float* to) {
    rank.along(Axis::tensor).reduce_scatter(rank.stream(), from, to, kCount);
    cpu_stream(rank.stream()).enqueue([to] {
      for (Index i = 0; i < kCount; ++i) to[i] *= 1.001F;
    });
  };
  expect_contains(refusal([&] { check_conjugate(two, scaled); }), "not a conjugate pair");

  ConjugatePair nan = copy_then_reduce();
  nan.forward = [](Rank& rank, const float* from, float* to) {
    copy(rank, from, to);
    cpu_stream(rank.stream()).enqueue([to] { to[3] = std::nanf(""); });
  };
  expect_contains(refusal([&] { check_conjugate(two, nan); }), "not a conjugate pair");
}

TEST(ConformanceRefuses, ReplicasThatDiffer) {
  ConjugatePair pair = copy_then_reduce();
  pair.backward = copy;  // no all_reduce: each rank keeps its own part
  expect_contains(refusal([&] { check_conjugate(along(Axis::tensor, 3), pair); }),
                  "ranks 0 and 1 should have the same bits");
}

TEST(ConformanceRefuses, RanksThatMakeOtherCalls) {
  const std::string text = refusal([] {
    run_ranks(along(Axis::data, 2), [](Rank& rank) {
      float x = 0;
      if (rank.rank() == 0) rank.along(Axis::data).all_reduce(rank.stream(), &x, 1);
      if (rank.rank() == 1) rank.along(Axis::data).broadcast(rank.stream(), &x, 1, DType::f32, 0);
      rank.stream().synchronize();
    });
  });
  expect_contains(text, "the ranks do not make the same calls");

  // A communicator that a rank forgets at its end hangs nobody, and is found out all the same.
  expect_contains(refusal([] {
                    run_ranks(along(Axis::data, 2), [](Rank& rank) {
                      float x = 0;
                      rank.along(Axis::data).all_reduce(rank.stream(), &x, 0);
                      rank.stream().synchronize();
                      if (rank.rank() == 0)
                        rank.along(Axis::data).broadcast(rank.stream(), &x, 0, DType::f32, 0);
                    });
                  }),
                  "call 2 along 'data of ranks 0, 1' differs");
}

TEST(ConformanceRefuses, ARankThatThrowsAndSaysWhich) {
  const std::string text = refusal([] {
    run_ranks(along(Axis::data, 3), [](Rank& rank) {
      float x = 0;
      if (rank.rank() == 2) throw Error("out of luck");
      rank.along(Axis::data).all_reduce(rank.stream(), &x, 1);
      rank.stream().synchronize();
    });
  });
  expect_contains(text, "rank 2 of 3: out of luck");
}

/// Nobody waits for an end that a rank cannot get, or did not come for.
TEST(ConformanceRefuses, TwoCommunicatorsOfOneName) {
  expect_contains(refusal([] {
                    run_ranks(along(Axis::data, 3), [](Rank& rank) {
                      const std::array ranks{rank.rank() == 0 ? 0 : 1, 2};
                      const auto twice = rank.rank() < 2 ? rank.connect("twice", ranks) : nullptr;
                      float x = 0;
                      if (twice) twice->all_reduce(rank.stream(), &x, 1);
                      rank.stream().synchronize();
                    });
                  }),
                  "'twice' is the name of another communicator");
}

TEST(ConformanceRefuses, ResultsThatDependOnTheRanks) {
  const auto sizes = [](Rank& rank) {
    return std::vector<float>{1.0F, static_cast<float>(rank.along(Axis::data).size())};
  };
  expect_contains(refusal([&] { check_equal_to_one(along(Axis::data, 2), sizes, 0); }),
                  "element 1 is 2 with 2 ranks and 1 with one");
  expect_contains(refusal([&] { check_equal_to_one(along(Axis::data, 2), sizes, 0.5); }),
                  "element 1");
  check_equal_to_one(along(Axis::data, 2), sizes, 1.0);

  const auto ranks = [](Rank& rank) { return std::vector<float>{static_cast<float>(rank.rank())}; };
  expect_contains(refusal([&] { check_equal_to_one(along(Axis::data, 2), ranks, 9.0); }),
                  "ranks 0 and 1 should have the same bits");
  const auto lengths = [](Rank& rank) {
    return std::vector<float>(static_cast<std::size_t>(rank.axes().world()));
  };
  expect_contains(refusal([&] { check_equal_to_one(along(Axis::data, 2), lengths, 0); }),
                  "2 results with 2 ranks, 1 with one");
}

/// Two replicas of a small model, until `change` makes something else of a rank.
std::string refused_training(const std::function<void(Rank&, TrainingRank&)>& change,
                             ModelConfig config = modeltest::small_llama()) {
  Training training;
  training.config = std::move(config);
  training.choices.micro_batch = {.batch = 1, .sequence = 9};
  training.choices.micro_batches = 2;
  training.choices.staging_elements =
      round_up(Model(training.config).max_block_elements(), ops::kNormChunk);
  training.steps = 2;
  return refusal([&] {
    check_training(
        along(Axis::data, 2), training,
        [&](Rank& rank) {
          TrainingRank own;
          own.replicas = 2;
          own.share = {.rank = rank.rank(), .ranks = 2};
          own.groups.replicas = rank.connect("replicas", std::array{0, 1});
          change(rank, own);
          return own;
        },
        Distance::all(1e-5));
  });
}

TEST(ConformanceOfTraining, AcceptsReplicas) {
  EXPECT_EQ(refused_training([](Rank&, TrainingRank&) {}), "nothing was refused");
}

TEST(ConformanceOfTraining, RefusesWhatIsNotWhatOneRankTrains) {
  // Both train on the same half.
  expect_contains(refused_training([](Rank&, TrainingRank& own) { own.share.rank = 0; }),
                  "with one rank: they differ by");
  // Nobody adds anything up.
  expect_contains(refused_training([](Rank&, TrainingRank& own) {
                    own.replicas = 1;
                    own.groups.replicas = StepGroups::alone().replicas;
                  }),
                  "the ranks report different losses");
  expect_contains(refused_training([](Rank& rank, TrainingRank& own) {
                    if (rank.rank() == 1) own.groups.replicas->abort("enough");
                  }),
                  "enough");
}

/// A group that counts parts and lets them alone: what it forgets is what the test looks for.
class Forgetful : public PartGroup {
 public:
  explicit Forgetful(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  [[nodiscard]] Partition partition() const override { return {ranks_->size(), ranks_->rank()}; }
  void sum(Stream& stream, void* data, Index count, DType type) const override {
    if (count >= smallest) ranks_->all_reduce(stream, data, count, type);
  }
  void gather(Stream& stream, const void* own, void* whole, Index count,
              DType type) const override {
    ranks_->all_gather(stream, own, whole, count, type);
  }
  void sum(std::span<double> values) const override {
    if (host) ranks_->sum(values);
  }
  Index smallest = 0;
  bool host = true;

 private:
  std::unique_ptr<Communicator> ranks_;
};

TEST(ConformanceOfTraining, RefusesPartsThatForgetTheirSums) {
  ModelConfig config = modeltest::small_llama();
  config.intermediate = 38;
  config.qk_norm = true;
  const auto with = [&](Index smallest, bool host) {
    return refused_training(
        [=](Rank& rank, TrainingRank& own) {
          auto parts = std::make_unique<Forgetful>(rank.connect("parts", std::array{0, 1}));
          parts->smallest = smallest;
          parts->host = host;
          own = {};
          own.partition = parts->partition();
          own.groups.parts = std::move(parts);
        },
        config);
  };
  EXPECT_EQ(with(0, true), "nothing was refused");
  // The gradients of the norms over heads, which are the shortest sums.
  expect_contains(with(config.head_dim + 1, true), "q_norm.weight' is");
  expect_contains(with(0, false), "the ranks report different norms");
  // Everything on the device.
  expect_contains(with(1 << 20, true), "on one rank and");
}

/// Says that there is another part, and does what it would if that gave nothing.
class FirstOfTwo : public PartGroup {
 public:
  [[nodiscard]] Partition partition() const override { return {.count = 2, .index = 0}; }
  void gather(Stream& stream, const void* /*own*/, void* whole, Index count,
              DType type) const override {
    stream.fill(static_cast<std::byte*>(whole) + count * size_of(type), 0, count * size_of(type));
  }
};

TEST(ConformanceOfTraining, RefusesElementsThatNobodyHolds) {
  expect_contains(refused_training(
                      [](Rank&, TrainingRank& own) {
                        own.partition = {.count = 2, .index = 0};
                        own.groups.parts = std::make_unique<FirstOfTwo>();
                      },
                      [] {
                        ModelConfig config = modeltest::small_llama();
                        config.intermediate = 38;
                        return config;
                      }()),
                  "no rank holds element");
}

}  // namespace
}  // namespace megatrain::conformance
