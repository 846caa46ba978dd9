#pragma once
/// @file
/// The ranks of a run along the axes that share steps (data) and layers (tensor).

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

  [[nodiscard]] Partition partition() const;
  [[nodiscard]] const DataRanks& data() const { return data_; }
  /// This rank's communicators. Calls `connect`, which is given ranks of the whole run, in the same
  /// order on every rank.
  [[nodiscard]] StepGroups connect(const DataRanks::Connect& connect) const;

 private:
  ProcessAxes axes_;
  int rank_;
  DataRanks data_;
};

}  // namespace megatrain
