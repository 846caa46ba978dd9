#pragma once
/// @file
/// The ranks of a run as threads, each with a rig of its own.

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/local/local_communicator.h"
#include "parallel/streaming/data_ranks.h"
#include "tests/engine/engine_rig.h"
#include "tests/rank_threads.h"

namespace megatrain::testing {

/// `replicas` shard groups of `shards` ranks.
struct RankLayout {
  int replicas = 1;
  int shards = 1;
  [[nodiscard]] int ranks() const { return replicas * shards; }
};

/// Local communicators by name: the first that asks makes those of all.
class LocalGroups {
 public:
  explicit LocalGroups(std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : timeout_(timeout) {}
  /// As DataRanks::Connect, for `rank`.
  [[nodiscard]] DataRanks::Connect of(int rank) {
    return [this, rank](const std::string& name, std::span<const int> members) {
      const std::lock_guard lock(mutex_);
      auto& group = groups_[name];
      if (group.empty())
        group = make_local_communicators(name, static_cast<int>(members.size()), timeout_);
      const auto place = std::ranges::find(members, rank) - members.begin();
      return std::move(group[static_cast<std::size_t>(place)]);
    };
  }

 private:
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups_;
};

/// A rank's choices of a run whose choices for one rank are given: its share of the micro-batches.
inline Choices share_of(Choices choices, const RankLayout& layout, int rank) {
  const DataRanks ranks(rank, layout.ranks(), layout.shards);
  choices.slicing = ranks.slicing();
  choices.replicas = ranks.replicas();
  choices.micro_batches /= layout.ranks();
  return choices;
}

/// Runs body(rank, data_ranks, step_groups) for all ranks.
/// @param groups  connects them, as LocalGroups does
/// @returns what each threw, by rank
template <class Body, class Groups = LocalGroups>
std::vector<std::exception_ptr> on_ranks(const RankLayout& layout, const Body& body,
                                         Groups&& groups = Groups()) {
  return on_threads(layout.ranks(), [&](int rank) {
    const DataRanks ranks(rank, layout.ranks(), layout.shards);
    body(rank, ranks, ranks.connect(groups.of(rank)));
  });
}

/// Runs body(rank, rig) for all ranks; what one throws is thrown here, the first rank's first. On
/// GPUs each rank has its own.
/// @param groups  connects them, as LocalGroups does
template <class Body, class Groups = LocalGroups>
void with_rigs(const ModelConfig& config, const Choices& choices, const RankLayout& layout,
               const RigOptions& options, const Body& body, Groups&& groups = Groups()) {
  const auto failures = on_ranks(
      layout,
      [&](int rank, const DataRanks& ranks, StepGroups connected) {
        RigOptions own = options;
        own.ordinal = rank;
        Rig rig(config, share_of(choices, layout, rank), own, std::move(connected), ranks.share());
        body(rank, rig);
      },
      groups);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace megatrain::testing
