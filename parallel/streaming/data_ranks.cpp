#include "parallel/streaming/data_ranks.h"

#include <fmt/core.h>

namespace megatrain {

DataRanks::DataRanks(int rank, int ranks, int shard_group)
    : rank_(rank), ranks_(ranks), shard_group_(shard_group) {
  require(rank >= 0 && rank < ranks, "a rank is one of its axis");
  if (shard_group < 1 || ranks % shard_group != 0)
    throw UserError(
        fmt::format("shard groups of {} do not make up {} ranks: --shard-group must divide them",
                    shard_group, ranks));
}

std::vector<int> DataRanks::replica_ranks() const {
  std::vector<int> replicas;
  for (int rank = rank_ % shard_group_; rank < ranks_; rank += shard_group_)
    replicas.push_back(rank);
  return replicas;
}

StepGroups DataRanks::connect(const Connect& connect) const {
  const int group = rank_ / shard_group_;
  const int place = rank_ % shard_group_;
  std::vector<int> shards;
  for (int i = 0; i < shard_group_; ++i) shards.push_back(group * shard_group_ + i);
  StepGroups groups;
  groups.gather = connect(fmt::format("weights of shard group {}", group), shards);
  groups.scatter = connect(fmt::format("gradients of shard group {}", group), shards);
  groups.replicas = connect(fmt::format("replicas of slice {}", place), replica_ranks());
  return groups;
}

}  // namespace megatrain
