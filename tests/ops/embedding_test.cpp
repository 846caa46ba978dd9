#include <algorithm>
#include <map>
#include <numeric>

#include "tests/ops/op_test.h"

namespace megatrain::optest {
namespace {

struct Shape {
  Index batch, sequence, width;
  std::int32_t vocabulary;
  [[nodiscard]] Index tokens() const { return batch * sequence; }
};

constexpr Shape kShapes[] = {{1, 1, 1, 1}, {2, 5, 7, 3}, {3, 33, 130, 50}, {2, 100, 1024, 11}};

class EmbeddingTest : public OpTest {};

TEST_P(EmbeddingTest, forward) {
  for (const Shape& s : kShapes) {
    for (const bool with_positions : {false, true}) {
      Buffer table = bench().input(type(), random_values(s.vocabulary * s.width, 1));
      Buffer positions = bench().input(type(), random_values(s.sequence * s.width, 2));
      const auto ids = random_ids(s.tokens(), 3, s.vocabulary);
      Buffer id_buffer = bench().input_raw(ids);
      Buffer out = bench().output(type(), s.tokens() * s.width);
      bench().run(ops::EmbeddingForward{.tokens = s.tokens(),
                                        .width = s.width,
                                        .sequence = s.sequence,
                                        .type = type(),
                                        .table = table.data(),
                                        .ids = id_buffer.as<std::int32_t>(),
                                        .positions = with_positions ? positions.data() : nullptr,
                                        .out = out.data()});
      const Values rows = table.values();
      const Values places = positions.values();
      Values want;
      for (Index t = 0; t < s.tokens(); ++t)
        for (Index c = 0; c < s.width; ++c)
          want.push_back(
              rows[static_cast<std::size_t>(ids[static_cast<std::size_t>(t)] * s.width + c)] +
              (with_positions ? places[static_cast<std::size_t>(t % s.sequence * s.width + c)]
                              : 0.0));
      if (with_positions)
        EXPECT_LT(relative_error(out.values(), want), tolerance(type()));
      else
        EXPECT_EQ(out.values(), want);
    }
  }
}

/// The host's part: tokens sorted by id, stably.
struct Sorted {
  std::vector<std::int32_t> order, begins, unique;
  explicit Sorted(const std::vector<std::int32_t>& ids) : order(ids.size()) {
    std::iota(order.begin(), order.end(), 0);
    const auto id = [&](std::int32_t t) { return ids[static_cast<std::size_t>(t)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return id(a) < id(b); });
    for (std::size_t i = 0; i < order.size(); ++i)
      if (i == 0 || id(order[i]) != id(order[i - 1])) {
        begins.push_back(static_cast<std::int32_t>(i));
        unique.push_back(id(order[i]));
      }
    begins.push_back(static_cast<std::int32_t>(order.size()));
  }
};

TEST_P(EmbeddingTest, backward_adds_to_the_rows_of_its_tokens) {
  for (const Shape& s : kShapes) {
    const auto ids = random_ids(s.tokens(), 3, s.vocabulary);
    const Sorted sorted(ids);
    Buffer dy = bench().input(type(), random_values(s.tokens() * s.width, 1));
    Buffer order = bench().input_raw(sorted.order);
    Buffer begins = bench().input_raw(sorted.begins);
    Buffer unique = bench().input_raw(sorted.unique);
    Buffer dtable = bench().input(DType::f32, random_values(s.vocabulary * s.width, 2));
    Values want = dtable.values();
    const Values gradients = dy.values();
    for (Index t = 0; t < s.tokens(); ++t)
      for (Index c = 0; c < s.width; ++c)
        want[static_cast<std::size_t>(ids[static_cast<std::size_t>(t)] * s.width + c)] +=
            gradients[static_cast<std::size_t>(t * s.width + c)];
    bench().run(ops::EmbeddingBackward{.uniques = static_cast<Index>(sorted.unique.size()),
                                       .width = s.width,
                                       .type = type(),
                                       .dy = dy.data(),
                                       .order = order.as<std::int32_t>(),
                                       .begins = begins.as<std::int32_t>(),
                                       .unique = unique.as<std::int32_t>(),
                                       .dtable = dtable.as<float>()});
    EXPECT_LT(relative_error(dtable.values(), want), tolerance(DType::f32));
  }
}

/// A part of the table gives its rows, zeros for others, and gets its rows' gradients.
TEST_P(EmbeddingTest, parts_of_a_table) {
  const Shape s = kShapes[2];
  const auto ids = random_ids(s.tokens(), 3, s.vocabulary);
  const Sorted sorted(ids);
  const Values rows = random_values(s.vocabulary * s.width, 1);
  const auto part_of = [&](const Values& all, Index first, Index last) {
    return Values(all.begin() + first * s.width, all.begin() + last * s.width);
  };
  Buffer positions = bench().input(type(), random_values(s.sequence * s.width, 2));
  Buffer id_buffer = bench().input_raw(ids);
  Buffer dy = bench().input(type(), random_values(s.tokens() * s.width, 4));
  Buffer order = bench().input_raw(sorted.order);
  Buffer begins = bench().input_raw(sorted.begins);
  Buffer unique = bench().input_raw(sorted.unique);
  const auto forward = [&](const Values& own, ops::TableRows which, const void* at) {
    Buffer table = bench().input(type(), own);
    Buffer out = bench().output(type(), s.tokens() * s.width);
    bench().run(ops::EmbeddingForward{.tokens = s.tokens(),
                                      .width = s.width,
                                      .sequence = s.sequence,
                                      .type = type(),
                                      .table = table.data(),
                                      .rows = which,
                                      .ids = id_buffer.as<std::int32_t>(),
                                      .positions = at,
                                      .out = out.data()});
    return out.values();
  };
  const auto backward = [&](Index count, ops::TableRows which) {
    Buffer dtable = bench().input(DType::f32, Values(static_cast<std::size_t>(count * s.width)));
    bench().run(ops::EmbeddingBackward{.uniques = static_cast<Index>(sorted.unique.size()),
                                       .width = s.width,
                                       .type = type(),
                                       .dy = dy.data(),
                                       .order = order.as<std::int32_t>(),
                                       .begins = begins.as<std::int32_t>(),
                                       .unique = unique.as<std::int32_t>(),
                                       .rows = which,
                                       .dtable = dtable.as<float>()});
    return dtable.values();
  };
  const Values whole = forward(rows, {}, nullptr);
  const Values whole_gradient = backward(s.vocabulary, {});
  for (const auto& [first, last] : {std::pair<Index, Index>{0, 17}, {17, 50}, {49, 50}}) {
    const ops::TableRows which{.first = first, .count = last - first};
    const Values out = forward(part_of(rows, first, last), which, nullptr);
    const Values shifted = forward(part_of(rows, first, last), which, positions.data());
    const Values places = positions.values();
    for (Index t = 0; t < s.tokens(); ++t)
      for (Index c = 0; c < s.width; ++c) {
        const auto at = static_cast<std::size_t>(t * s.width + c);
        const bool here = which.have(ids[static_cast<std::size_t>(t)]);
        ASSERT_EQ(out[at], here ? whole[at] : 0);
        if (!here) {
          ASSERT_EQ(shifted[at], places[static_cast<std::size_t>(t % s.sequence * s.width + c)]);
        }
      }
    EXPECT_EQ(backward(last - first, which), part_of(whole_gradient, first, last));
  }
}

TEST_P(EmbeddingTest, positions_backward) {
  for (const Shape& s : kShapes) {
    for (const bool accumulate : {false, true}) {
      Buffer dy = bench().input(type(), random_values(s.tokens() * s.width, 1));
      const Values before = random_values(s.sequence * s.width, 2);
      Buffer out = accumulate ? bench().input(DType::f32, before)
                              : bench().output(DType::f32, s.sequence * s.width);
      Values want = accumulate ? out.values() : Values(before.size(), 0.0);
      const Values gradients = dy.values();
      for (std::size_t i = 0; i < gradients.size(); ++i) want[i % want.size()] += gradients[i];
      bench().run(ops::PositionBackward{.batch = s.batch,
                                        .sequence = s.sequence,
                                        .width = s.width,
                                        .type = type(),
                                        .dy = dy.data(),
                                        .dpositions = out.as<float>(),
                                        .accumulate = accumulate});
      EXPECT_LT(relative_error(out.values(), want), tolerance(DType::f32));
    }
  }
}

TEST_P(EmbeddingTest, same_bits_for_every_thread_count) {
  const Shape s{4, 250, 96, 37};
  const auto ids = random_ids(s.tokens(), 3, s.vocabulary);
  const Sorted sorted(ids);
  expect_reproducible([&](OpBench& on) {
    Buffer dy = on.input(type(), random_values(s.tokens() * s.width, 1));
    Buffer order = on.input_raw(sorted.order);
    Buffer begins = on.input_raw(sorted.begins);
    Buffer unique = on.input_raw(sorted.unique);
    Buffer dtable = on.input(DType::f32, random_values(s.vocabulary * s.width, 2));
    on.run(ops::EmbeddingBackward{.uniques = static_cast<Index>(sorted.unique.size()),
                                  .width = s.width,
                                  .type = type(),
                                  .dy = dy.data(),
                                  .order = order.as<std::int32_t>(),
                                  .begins = begins.as<std::int32_t>(),
                                  .unique = unique.as<std::int32_t>(),
                                  .dtable = dtable.as<float>()});
    return dtable.bytes();
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, EmbeddingTest, testing::ValuesIn(op_cases()), op_case_name);

}  // namespace
}  // namespace megatrain::optest
