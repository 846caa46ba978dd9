#include "launcher/process/supervisor.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace megatrain::launcher {

namespace {

using parallel::Clock;

/// When a rank dies, its connection breaks and its process ends. The end of the process says more,
/// and has this long to be seen first.
constexpr std::chrono::seconds kSuspicionWaits{3};
/// Of a failed rank's last lines, what is told to other nodes.
constexpr std::size_t kToldBytes = 3000;

}  // namespace

Supervisor::Supervisor(Agents& agents, SignalQueue& signals, int generation, int nodes,
                       std::chrono::seconds grace, std::function<void(std::string_view)> say)
    : agents_(agents),
      signals_(signals),
      generation_(generation),
      nodes_(nodes),
      grace_(grace),
      say_(std::move(say)) {}

void Supervisor::suspect(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  suspicion_ = reason;
  suspicion_counts_at_ = Clock::now() + kSuspicionWaits;
  waker_.wake();
}

Verdict Supervisor::watch(RankGroup& ranks) {
  const auto everywhere = [&] { return nodes_ended_ == nodes_ || verdict_.alone; };
  for (;;) {
    ranks.read();
    take_signals();
    take_ended(ranks);
    take_suspicion();
    take_notices(ranks);
    take_trouble(ranks);
    if (kill_at_ && Clock::now() >= *kill_at_) {
      if (ranks.running())
        say_(fmt::format("ranks that did not end within {} s are killed", grace_.count()));
      ranks.signal(SIGKILL);
      kill_at_.reset();
    }
    if (!ranks.running() && !said_ended_) {
      said_ended_ = true;
      agents_.post(
          {Notice::Kind::ended, generation_, requeue_here_ ? kRequeueCode : 0, std::string()});
    }
    if (said_ended_ && everywhere()) break;
    wait(ranks);
  }
  ranks.finish();
  verdict_.stopped = stops_ > 0;
  return verdict_;
}

void Supervisor::wait(const RankGroup& ranks) {
  std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0},
                             {agents_.descriptor(), POLLIN, 0},
                             {waker_.descriptor(), POLLIN, 0}};
  ranks.add_to(polled);
  Clock::time_point until = Clock::time_point::max();
  if (kill_at_) until = *kill_at_;
  {
    const std::lock_guard lock(mutex_);
    if (suspicion_counts_at_) until = std::min(until, *suspicion_counts_at_);
  }
  ::poll(polled.data(), polled.size(),
         until == Clock::time_point::max() ? -1 : parallel::poll_timeout(until));
  agents_.clear();
  waker_.clear();
}

void Supervisor::take_signals() {
  while (const std::optional<int> signal = signals_.take())
    if (*signal != SIGCHLD)
      agents_.post({Notice::Kind::signal, generation_, *signal, std::string()});
}

void Supervisor::take_ended(RankGroup& ranks) {
  for (const EndedRank& one : ranks.take_ended()) {
    const int code = one.ending.exit_code();
    if (code == kRequeueCode) requeue_here_ = true;
    if (code == 0 || code == kRequeueCode || said_failed_ || verdict_.failed) continue;
    said_failed_ = true;
    std::string last = ranks.last_lines(one.rank);
    if (last.size() > kToldBytes)
      last = fmt::format("...{}", last.substr(last.size() - kToldBytes));
    agents_.post(
        {Notice::Kind::failed, generation_, code,
         fmt::format("rank {} on {} failed: {}{}{}", one.rank, parallel::host_name(),
                     describe(one.ending),
                     last.empty() ? "; it has printed nothing" : "; its last lines:\n", last)});
  }
}

void Supervisor::take_suspicion() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!suspicion_counts_at_ || Clock::now() < *suspicion_counts_at_) return;
    suspicion_counts_at_.reset();
    reason = *suspicion_;
  }
  if (said_failed_ || verdict_.failed) return;
  said_failed_ = true;
  agents_.post({Notice::Kind::failed, generation_, 1, reason});
}

void Supervisor::take_notices(RankGroup& ranks) {
  // Every node stops at the same notice. One that comes after is of the next generation, where a
  // signal counts still.
  while (nodes_ended_ < nodes_) {
    const std::optional<Notice> notice = agents_.take();
    if (!notice) return;
    const bool is_late = notice->generation < generation_ && notice->kind == Notice::Kind::signal;
    if (notice->generation != generation_ && !is_late) continue;
    switch (notice->kind) {
      case Notice::Kind::signal:
        ranks.signal(notice->number);
        // Ranks take their time to save. Who asks once more does not want to wait for ever.
        if (++stops_ == 2) end_ranks(ranks);
        break;
      case Notice::Kind::failed:
        if (verdict_.failed) break;
        verdict_.failed = true;
        verdict_.exit_code = notice->number;
        say_(notice->text);
        end_ranks(ranks);
        break;
      case Notice::Kind::ended:
        ++nodes_ended_;
        if (!verdict_.failed && notice->number != 0) verdict_.exit_code = notice->number;
        break;
    }
  }
}

void Supervisor::take_trouble(RankGroup& ranks) {
  if (verdict_.alone || nodes_ended_ == nodes_) return;
  const std::optional<std::string> trouble = agents_.trouble();
  if (!trouble) return;
  verdict_.alone = true;
  say_("the nodes cannot go on together: " + *trouble);
  if (!verdict_.failed) verdict_.exit_code = 1;
  verdict_.failed = true;
  end_ranks(ranks);
}

void Supervisor::end_ranks(RankGroup& ranks) {
  if (kill_at_) return;
  ranks.signal(SIGTERM);
  kill_at_ = Clock::now() + grace_;
}

}  // namespace megatrain::launcher
