#pragma once
/// @file
/// Watches over one generation of ranks on all nodes, from this node.

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/agents.h"
#include "launcher/process/rank_group.h"
#include "launcher/process/signal_queue.h"

namespace megatrain::launcher {

/// How a generation ended, the same on every node.
struct Verdict {
  int exit_code = 0;
  bool failed = false;   ///< a rank failed, or a node is gone
  bool stopped = false;  ///< somebody asked for the end
  bool alone = false;    ///< a node is gone: there is nobody to go on with
};

/// When a rank dies, others notice that its connection broke, and may end before it has: what a
/// dying process holds is taken from it first. So the rank that the rendezvous has lost is the one
/// to blame, whoever ended first.
class Supervisor {
 public:
  /// @param grace  what ranks have between SIGTERM and SIGKILL when another has failed
  /// @param say  a line for the person who looks on
  Supervisor(Agents& agents, SignalQueue& signals, int generation, int nodes,
             std::chrono::seconds grace, std::function<void(std::string_view)> say);

  /// Returns when no rank of any node runs any more, or when a node is gone and none of this one.
  Verdict watch(RankGroup& ranks);

 private:
  void wait(const RankGroup& ranks);
  void take_signals();
  void take_ended(RankGroup& ranks);
  void take_notices(RankGroup& ranks);
  void take(const Notice& notice, RankGroup& ranks);
  void take_trouble();
  void keep_time(RankGroup& ranks);
  void end_ranks(RankGroup& ranks);
  void end_within(std::chrono::seconds time);
  void pass_judgement();

  Agents& agents_;
  SignalQueue& signals_;
  const int generation_;
  const int nodes_;
  const std::chrono::seconds grace_;
  std::function<void(std::string_view)> say_;

  Verdict verdict_;
  int stops_ = 0;  ///< signals that asked for the end
  int nodes_ended_ = 0;
  int asked_code_ = 0;  ///< of the ranks of this node that ended because they were asked to
  bool said_ended_ = false;
  bool killed_ = false;
  std::set<int> made_room_;  ///< those ranks
  std::optional<Notice> suspect_;
  bool suspect_came_first_ = false;  ///< before any failure
  std::vector<Notice> failures_;     ///< in the order in which all nodes hear of them
  /// When ranks that have not ended are asked to, and when they are killed.
  std::optional<parallel::Clock::time_point> end_at_, kill_at_;
};

}  // namespace megatrain::launcher
