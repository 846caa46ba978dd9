#include "parallel/axes/axes.h"

#include <gtest/gtest.h>

#include <set>

#include "core/engine/solo_communicator.h"

namespace megatrain {
namespace {

ProcessAxes axes(int pipeline, int data, int expert, int context, int tensor) {
  Coordinates sizes;
  sizes[Axis::pipeline] = pipeline;
  sizes[Axis::data] = data;
  sizes[Axis::expert] = expert;
  sizes[Axis::context] = context;
  sizes[Axis::tensor] = tensor;
  return ProcessAxes(sizes);
}

constexpr std::array<Axis, kAxes> kAll{Axis::pipeline, Axis::data, Axis::expert, Axis::context,
                                       Axis::tensor};

TEST(ProcessAxes, EveryAxisExistsFromTheStart) {
  const ProcessAxes one;
  EXPECT_EQ(one.world(), 1);
  for (const Axis axis : kAll) {
    EXPECT_EQ(one.size(axis), 1);
    EXPECT_EQ(one.line(0, axis), std::vector<int>{0});
  }
}

TEST(ProcessAxes, RanksAndCoordinatesAreOneToOne) {
  const ProcessAxes box = axes(2, 3, 1, 2, 4);
  EXPECT_EQ(box.world(), 48);
  for (int rank = 0; rank < box.world(); ++rank) {
    const Coordinates at = box.coordinates(rank);
    for (const Axis axis : kAll) {
      EXPECT_GE(at[axis], 0);
      EXPECT_LT(at[axis], box.size(axis));
    }
    EXPECT_EQ(box.rank(at), rank);
  }
}

TEST(ProcessAxes, TensorRanksAreNeighboursAndPipelineRanksFarthest) {
  const ProcessAxes box = axes(2, 2, 1, 1, 2);
  EXPECT_EQ(box.line(0, Axis::tensor), (std::vector<int>{0, 1}));
  EXPECT_EQ(box.line(0, Axis::data), (std::vector<int>{0, 2}));
  EXPECT_EQ(box.line(0, Axis::pipeline), (std::vector<int>{0, 4}));
  EXPECT_EQ(box.line(7, Axis::data), (std::vector<int>{5, 7}));
  EXPECT_EQ(box.line(7, Axis::expert), (std::vector<int>{7}));
}

TEST(ProcessAxes, LinesPartitionTheWorldAndHaveNamesOfTheirOwn) {
  const ProcessAxes box = axes(2, 3, 2, 1, 2);
  for (const Axis axis : kAll) {
    std::set<std::vector<int>> lines;
    std::set<std::string> names;
    std::multiset<int> members;
    for (int rank = 0; rank < box.world(); ++rank) {
      const std::vector<int> line = box.line(rank, axis);
      EXPECT_EQ(line[static_cast<std::size_t>(box.coordinates(rank)[axis])], rank);
      names.insert(box.line_name(rank, axis));
      if (lines.insert(line).second) members.insert(line.begin(), line.end());
    }
    EXPECT_EQ(members.size(), static_cast<std::size_t>(box.world()));
    EXPECT_EQ(std::set<int>(members.begin(), members.end()).size(), members.size());
    EXPECT_EQ(names.size(), lines.size());
  }
  EXPECT_EQ(box.line_name(0, Axis::tensor), "tensor of ranks 0, 1");
  EXPECT_EQ(box.line_name(3, Axis::context), "context of rank 3");
  EXPECT_EQ(axes(1, 64, 1, 1, 2).line_name(3, Axis::data), "data of ranks 1, 3, ..., 127");
}

TEST(ProcessAxes, RefusesWhatIsNoBox) {
  EXPECT_THROW(axes(1, 0, 1, 1, 1), UserError);
  EXPECT_THROW(axes(1, 1, 1, 1, -2), UserError);
  EXPECT_THROW(axes(1 << 16, 1 << 16, 1, 1, 1), UserError);
  const ProcessAxes box = axes(1, 2, 1, 1, 2);
  EXPECT_THROW((void)box.coordinates(4), LogicError);
  EXPECT_THROW((void)box.coordinates(-1), LogicError);
  Coordinates outside;
  outside[Axis::data] = 2;
  EXPECT_THROW((void)box.rank(outside), LogicError);
}

TEST(ProcessAxes, AllAxesAreConnectedWhateverTheirSize) {
  const ProcessAxes box = axes(1, 2, 1, 1, 2);
  std::vector<std::string> made;
  const auto connect = [&](const std::string& name, int rank, int size) {
    made.push_back(name + " as " + std::to_string(rank) + "/" + std::to_string(size));
    return make_solo_communicator(name);
  };
  const AxisCommunicators communicators = connect_axes(box, 2, connect);
  EXPECT_EQ(made,
            (std::vector<std::string>{"pipeline of rank 2 as 0/1", "data of ranks 0, 2 as 1/2",
                                      "expert of rank 2 as 0/1", "context of rank 2 as 0/1",
                                      "tensor of ranks 2, 3 as 0/2"}));
  for (const Axis axis : kAll) EXPECT_NE(communicators[axis], nullptr);
}

}  // namespace
}  // namespace megatrain
