#include "parallel/tensor/model_ranks.h"

#include <fmt/core.h>

#include <utility>

#include "parallel/tensor/tensor_parts.h"

namespace megatrain {

ModelRanks::ModelRanks(const ProcessAxes& axes, int rank, int shard_group)
    : axes_(axes),
      rank_(rank),
      data_(axes.coordinates(rank)[Axis::data], axes.size(Axis::data), shard_group) {
  for (const Axis axis : {Axis::pipeline, Axis::expert, Axis::context})
    if (axes.size(axis) > 1)
      throw UserError(
          fmt::format("{} ranks along the {} axis, but a model is shared along the data "
                      "and the tensor axis only",
                      axes.size(axis), name(axis)));
}

Partition ModelRanks::partition() const {
  return {axes_.size(Axis::tensor), axes_.coordinates(rank_)[Axis::tensor]};
}

std::vector<int> ModelRanks::in_world(std::span<const int> data_ranks) const {
  const std::vector<int> line = axes_.line(rank_, Axis::data);
  std::vector<int> ranks;
  for (const int rank : data_ranks) ranks.push_back(line[static_cast<std::size_t>(rank)]);
  return ranks;
}

std::vector<int> ModelRanks::replica_ranks() const { return in_world(data_.replica_ranks()); }

StepGroups ModelRanks::connect(const DataRanks::Connect& connect) const {
  const Partition part = partition();
  StepGroups groups = data_.connect([&](const std::string& name, std::span<const int> members) {
    return connect(part.count == 1 ? name : fmt::format("{}, part {}", name, part.index),
                   in_world(members));
  });
  groups.parts = make_tensor_parts(
      connect(fmt::format("parts, {}", axes_.line_name(rank_, Axis::tensor)), part_ranks()));
  return groups;
}

}  // namespace megatrain
