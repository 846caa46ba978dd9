#pragma once
/// @file
/// The ranks that train on parts of the same steps, and how they divide a model among them.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine/step_groups.h"
#include "core/store/slicing.h"
#include "core/train/batch.h"

namespace megatrain {

/// Hybrid sharding: neighbouring ranks form shard groups, each of which holds the model once, a
/// slice a rank. Ranks at the same place of their groups hold the same slice: they are replicas,
/// and sum their gradients.
class DataRanks {
 public:
  /// @param rank         of this process on the data axis
  /// @param ranks        of that axis
  /// @param shard_group  ranks of a shard group
  /// @throws UserError when groups of that size do not make up the ranks
  DataRanks(int rank, int ranks, int shard_group);
  static DataRanks alone() { return {0, 1, 1}; }

  [[nodiscard]] Slicing slicing() const { return {shard_group_, rank_ % shard_group_}; }
  [[nodiscard]] Index replicas() const { return ranks_ / shard_group_; }
  /// Those that hold this rank's slice, itself among them, in order.
  [[nodiscard]] std::vector<int> replica_ranks() const;
  /// Whether this rank writes its slice to files: one replica of each does.
  [[nodiscard]] bool writes() const { return rank_ < shard_group_; }
  [[nodiscard]] DataShare share() const { return {rank_, ranks_}; }

  /// Makes a communicator of the ranks given, this one among them, in their order. Called on all
  /// of them with the same name.
  using Connect =
      std::function<std::unique_ptr<Communicator>(const std::string& name, std::span<const int>)>;
  /// This rank's communicators. Calls `connect` in the same order on every rank.
  [[nodiscard]] StepGroups connect(const Connect& connect) const;

 private:
  int rank_;
  int ranks_;
  int shard_group_;
};

}  // namespace megatrain
