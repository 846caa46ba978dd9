#include "parallel/axes/axes.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <limits>

namespace megatrain {

namespace {

constexpr std::array<Axis, kAxes> kOuterToInner{Axis::pipeline, Axis::data, Axis::expert,
                                                Axis::context, Axis::tensor};

}  // namespace

std::string_view name(Axis axis) {
  constexpr std::array<std::string_view, kAxes> kNames{"pipeline", "data", "expert", "context",
                                                       "tensor"};
  return kNames[static_cast<std::size_t>(axis)];
}

ProcessAxes::ProcessAxes(const PerAxis<int>& sizes) : sizes_(sizes) {
  std::int64_t world = 1;
  for (const Axis axis : kOuterToInner) {
    if (sizes_[axis] < 1)
      throw UserError(
          fmt::format("the {} axis needs a size of at least 1, not {}", name(axis), sizes_[axis]));
    world *= sizes_[axis];
    if (world > std::numeric_limits<int>::max())
      throw UserError("the sizes of the process axes multiply to more ranks than can be counted");
  }
  world_ = static_cast<int>(world);
}

Coordinates ProcessAxes::coordinates(int rank) const {
  require(rank >= 0 && rank < world_, "a rank outside the world");
  Coordinates result;
  for (std::size_t i = kAxes; i-- > 0;) {
    const Axis axis = kOuterToInner[i];
    result[axis] = rank % sizes_[axis];
    rank /= sizes_[axis];
  }
  return result;
}

int ProcessAxes::rank(const Coordinates& coordinates) const {
  int result = 0;
  for (const Axis axis : kOuterToInner) {
    require(coordinates[axis] >= 0 && coordinates[axis] < sizes_[axis],
            "coordinates outside the process axes");
    result = result * sizes_[axis] + coordinates[axis];
  }
  return result;
}

std::vector<int> ProcessAxes::line(int rank, Axis axis) const {
  Coordinates at = coordinates(rank);
  std::vector<int> ranks;
  for (at[axis] = 0; at[axis] < sizes_[axis]; ++at[axis]) ranks.push_back(this->rank(at));
  return ranks;
}

std::string ProcessAxes::line_name(int rank, Axis axis) const {
  const std::vector<int> ranks = line(rank, axis);
  if (ranks.size() == 1) return fmt::format("{} of rank {}", name(axis), rank);
  // The axis and the first two decide the rest.
  constexpr std::size_t kListed = 8;
  if (ranks.size() > kListed)
    return fmt::format("{} of ranks {}, {}, ..., {}", name(axis), ranks[0], ranks[1], ranks.back());
  return fmt::format("{} of ranks {}", name(axis), fmt::join(ranks, ", "));
}

AxisCommunicators connect_axes(
    const ProcessAxes& axes, int rank,
    const std::function<std::unique_ptr<Communicator>(const std::string&, int, int)>& connect) {
  const Coordinates at = axes.coordinates(rank);
  AxisCommunicators result;
  for (const Axis axis : kOuterToInner)
    result[axis] = connect(axes.line_name(rank, axis), at[axis], axes.size(axis));
  return result;
}

}  // namespace megatrain
