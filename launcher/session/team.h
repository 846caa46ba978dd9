#pragma once
/// @file
/// The processes that train one model together, as one of them sees them.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/step_groups.h"
#include "launcher/session/machine.h"
#include "launcher/session/world_peers.h"
#include "parallel/rendezvous/place.h"
#include "parallel/tensor/model_ranks.h"
#include "parallel/world/world.h"

namespace megatrain::launcher {

struct TeamOptions {
  Index patience = 0;         ///< seconds that ranks wait to meet, and for one another in a step
  std::string configuration;  ///< what all must have in common, as text
  Device* device = nullptr;   ///< this rank's; outlives the team
  /// Called once, from another thread, when another rank has ended the work of all.
  std::function<void()> on_trouble = {};
};

/// How the ranks divide the model, before they meet.
/// @param tensor_parallel  neighbouring ranks that have a part of each layer: a tensor group
/// @param shard_group      tensor groups that share a copy of the model; 0: those of a node
/// @throws UserError when they cannot
ModelRanks divide(const parallel::ProcessPlace& place, Index tensor_parallel, Index shard_group);
/// This process's part of its machine.
NodeShare node_share(const parallel::ProcessPlace& place, const ModelRanks& ranks);
/// A rank's part of the model. @throws UserError naming --tensor-parallel when there are no such
/// parts, and saying which there are
Model part_of(const ModelConfig& config, const ModelRanks& ranks);

/// Every rank makes the same calls in the same order. One that is lost, or fails, ends the calls of
/// the others with an error that names it.
class Team {
 public:
  /// Returns when all ranks are here. @throws as parallel::World does
  Team(const parallel::ProcessPlace& place, const ModelRanks& ranks, const TeamOptions& options);

  /// Whether this is the rank that speaks, and writes what is written once.
  [[nodiscard]] bool leads() const { return world_.rank() == 0; }
  [[nodiscard]] bool alone() const { return world_.size() == 1; }
  [[nodiscard]] int size() const { return world_.size(); }
  [[nodiscard]] const ModelRanks& ranks() const { return ranks_; }
  [[nodiscard]] const DataRanks& data() const { return ranks_.data(); }

  [[nodiscard]] StepGroups connect();
  /// Those who write files together. Threads of a save may use them while the rest goes on.
  [[nodiscard]] io::Peers& peers() { return peers_; }
  /// Gives every rank the smallest memory of any, so that all make the same plan.
  void agree(Machine& machine);
  /// @throws UserError naming the ranks where `text` is another than on rank 0
  void require_same(std::string_view what, const std::string& text);
  /// Those of `group`, this rank among them, whose text is not the one that most have, of which the
  /// first counts where they are even. Every rank of the team calls it with a group of its own; all
  /// of a group get the same answer.
  std::vector<int> differing(std::span<const int> group, std::string_view what,
                             const std::string& text);
  /// Whether every rank says so.
  bool all(std::string_view what, bool value);
  /// Bits that any rank sets.
  unsigned any(std::string_view what, unsigned bits);
  void barrier(std::string_view what);
  /// For the others' messages, and for the watchdog: what this rank does until it says something
  /// else, which a step does within the options' patience.
  /// @param saves  updates may wait for the disk meanwhile: it has kSavePatience times as long
  void in_step(std::string_view what, bool saves);
  /// The same for what may take any time.
  void at_work(std::string_view what);
  /// This rank has failed: ends the work of all, who are told why.
  void fail(std::string_view reason) { world_.fail(reason); }

  static constexpr int kSavePatience = 10;

 private:
  ModelRanks ranks_;
  parallel::Milliseconds patience_;
  parallel::World world_;
  WorldPeers peers_{world_};
};

}  // namespace megatrain::launcher
