#pragma once
/// @file
/// The communicators of a process that are to end together.

#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "core/engine/communicator.h"
#include "parallel/rendezvous/registry.h"

namespace megatrain::parallel {

/// A communicator is on the list from add() to its destructor, which waits while end() is at it. So
/// a communicator is never ended and destroyed at the same time, and nobody but its owner destroys
/// it. All calls may come from any thread.
class LivingCommunicators : public std::enable_shared_from_this<LivingCommunicators> {
 public:
  /// @returns the same communicator, on the list; already ended when the list is
  std::unique_ptr<Communicator> add(std::unique_ptr<Communicator> communicator);
  /// Ends all, and those that are added later. The first trouble counts.
  void end(const Trouble& trouble);
  /// What has ended them.
  [[nodiscard]] std::optional<Trouble> trouble() const;

 private:
  class Member;

  mutable std::mutex mutex_;
  std::set<Communicator*> members_;
  std::optional<Trouble> trouble_;
};

}  // namespace megatrain::parallel
