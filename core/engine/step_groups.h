#pragma once
/// @file
/// The ranks that a step is shared with.

#include <memory>
#include <span>
#include <string_view>

#include "core/engine/communicator.h"
#include "core/model/part_group.h"

namespace megatrain {

/// A rank's communicators, one for each of what ranks do together, so that those on different
/// streams overlap. For one rank each is one that does nothing.
struct StepGroups {
  std::unique_ptr<Communicator> gather;    ///< the shard group: weights
  std::unique_ptr<Communicator> scatter;   ///< the shard group: gradients
  std::unique_ptr<Communicator> replicas;  ///< those that hold the same slices: sums of gradients
  /// The other parts of the model. They see the same tokens, and find the same losses.
  std::unique_ptr<PartGroup> parts = std::make_unique<PartGroup>();

  /// One rank by itself.
  static StepGroups alone();

  /// Ranks that share a step's tokens.
  [[nodiscard]] int ranks() const { return scatter->size() * replicas->size(); }
  /// Replaces each value by its sum over the ranks that share a step's tokens, added in an order
  /// that all share. Blocks. @throws PeerError
  void sum(std::span<double> values);
  /// At a step's end, the sums that all ranks decide by, in one exchange of a group. Parts see the
  /// same losses and replicas hold the same gradients: each counts once. Blocks. @throws PeerError
  /// @param losses        of this rank's tokens: as sum()
  /// @param squared_norm  of its slices: over those that hold the model once
  void sum_step(double& losses, double& squared_norm);
  /// Returns when no collective of theirs has failed. See Communicator::check. @throws PeerError
  void check();
  /// Ends all of them, for all ranks. See Communicator::abort.
  void abort(std::string_view reason) noexcept;
};

}  // namespace megatrain
