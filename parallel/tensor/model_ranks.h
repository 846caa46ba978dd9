#pragma once
/// @file
/// The ranks of a run along the axes that share steps (data) and layers (tensor).

#include <span>
#include <vector>

#include "parallel/axes/axes.h"
#include "parallel/streaming/data_ranks.h"

namespace megatrain {

/// What a rank of such a run is. The ranks of a tensor line have one part of the model each and see
/// the same tokens; those of a data line have the same part and divide its slabs and the steps.
class ModelRanks {
 public:
  /// @param shard_group  ranks of the data axis in a shard group, see DataRanks
  /// @throws UserError for another axis of more than one rank, or a shard group that does not fit
  ModelRanks(const ProcessAxes& axes, int rank, int shard_group);

  static ModelRanks alone() { return {ProcessAxes(), 0, 1}; }

  [[nodiscard]] int world() const { return axes_.world(); }
  [[nodiscard]] Partition partition() const;
  [[nodiscard]] const DataRanks& data() const { return data_; }
  /// The ranks of the whole run that hold this one's slice of its part, itself among them, in
  /// order.
  [[nodiscard]] std::vector<int> replica_ranks() const;
  /// The ranks of the whole run that have the other parts of this one's slices, itself among them,
  /// by part.
  [[nodiscard]] std::vector<int> part_ranks() const { return axes_.line(rank_, Axis::tensor); }
  /// This rank's communicators. Calls `connect`, which is given ranks of the whole run, in the same
  /// order on every rank.
  [[nodiscard]] StepGroups connect(const DataRanks::Connect& connect) const;

 private:
  [[nodiscard]] std::vector<int> in_world(std::span<const int> data_ranks) const;

  ProcessAxes axes_;
  int rank_;
  DataRanks data_;
};

}  // namespace megatrain
