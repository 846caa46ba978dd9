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

StepGroups ModelRanks::connect(const DataRanks::Connect& connect) const {
  const Partition part = partition();
  const std::vector<int> line = axes_.line(rank_, Axis::data);
  StepGroups groups = data_.connect([&](const std::string& name, std::span<const int> members) {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(line[static_cast<std::size_t>(member)]);
    return connect(part.count == 1 ? name : fmt::format("{}, part {}", name, part.index), ranks);
  });
  groups.parts =
      make_tensor_parts(connect(fmt::format("parts, {}", axes_.line_name(rank_, Axis::tensor)),
                                axes_.line(rank_, Axis::tensor)));
  return groups;
}

}  // namespace megatrain
