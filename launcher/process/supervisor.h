#pragma once
/// @file
/// Watches over one generation of ranks on all nodes, from this node.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

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

class Supervisor {
 public:
  /// @param grace  what ranks have between SIGTERM and SIGKILL when another has failed
  /// @param say  a line for the person who looks on
  Supervisor(Agents& agents, SignalQueue& signals, int generation, int nodes,
             std::chrono::seconds grace, std::function<void(std::string_view)> say);

  /// Says, from any thread, that the ranks' rendezvous has lost a rank.
  void suspect(const std::string& reason);

  /// Returns when no rank of any node runs any more, or when a node is gone and none of this one.
  Verdict watch(RankGroup& ranks);

 private:
  void wait(const RankGroup& ranks);
  void take_signals();
  void take_notices(RankGroup& ranks);
  void take_ended(RankGroup& ranks);
  void take_trouble(RankGroup& ranks);
  void take_suspicion();
  void end_ranks(RankGroup& ranks);

  Agents& agents_;
  SignalQueue& signals_;
  const int generation_;
  const int nodes_;
  const std::chrono::seconds grace_;
  std::function<void(std::string_view)> say_;

  Verdict verdict_;
  int stops_ = 0;  ///< signals that asked for the end
  int nodes_ended_ = 0;
  bool requeue_here_ = false;  ///< a rank of this node asks for it
  bool said_failed_ = false, said_ended_ = false;
  std::optional<parallel::Clock::time_point> kill_at_;
  std::mutex mutex_;
  std::optional<std::string> suspicion_;
  std::optional<parallel::Clock::time_point> suspicion_counts_at_;
  parallel::Waker waker_;
};

/// Exit code of a rank that was asked to make room and can go on elsewhere; no failure.
constexpr int kRequeueCode = 75;

}  // namespace megatrain::launcher
