#pragma once
/// @file
/// The ranks that a step is shared with.

#include <memory>
#include <span>
#include <string_view>

#include "core/engine/communicator.h"

namespace megatrain {

/// A rank's communicators, one for each of what ranks do together, so that those on different
/// streams overlap. For one rank each is one that does nothing.
struct StepGroups {
  std::unique_ptr<Communicator> gather;    ///< the shard group: weights
  std::unique_ptr<Communicator> scatter;   ///< the shard group: gradients
  std::unique_ptr<Communicator> replicas;  ///< those that hold the same slices: sums of gradients

  /// One rank by itself.
  static StepGroups alone();

  [[nodiscard]] int ranks() const { return scatter->size() * replicas->size(); }
  /// Replaces each value by its sum over all ranks, added in an order that all share. Blocks.
  /// @throws PeerError
  void sum(std::span<double> values);
  /// The same over the shard group, whose ranks hold a model once.
  void sum_slices(std::span<double> values) { scatter->sum(values); }
  /// Returns when no collective of theirs has failed. See Communicator::check. @throws PeerError
  void check();
  /// Ends all of them, for all ranks. See Communicator::abort.
  void abort(std::string_view reason) noexcept;
};

}  // namespace megatrain
