#include "launcher/process/supervisor.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "launcher/exit_codes.h"

namespace megatrain::launcher {

namespace {

using parallel::Clock;

/// What a suspect has to end, before it counts as hung and all are ended.
constexpr std::chrono::seconds kSuspicionWaits{3};
/// Ranks hear at the rendezvous that one has failed, and end by themselves, with its name. Only who
/// has not by then is asked to.
constexpr std::chrono::seconds kNewsTakes{1};
/// Of a failed rank's last lines, what is told to other nodes.
constexpr std::size_t kToldBytes = 3000;

std::string report(const EndedRank& rank, std::string last) {
  if (last.size() > kToldBytes)
    last = fmt::format("...{}", std::string_view(last).substr(last.size() - kToldBytes));
  return fmt::format("rank {} on {} failed: {}{}{}", rank.rank, parallel::host_name(),
                     describe(rank.ending),
                     last.empty() ? "; it has printed nothing" : "; its last lines:\n", last);
}

}  // namespace

Supervisor::Supervisor(Agents& agents, SignalQueue& signals, int generation, int nodes,
                       std::chrono::seconds grace, std::function<void(std::string_view)> say)
    : agents_(agents),
      signals_(signals),
      generation_(generation),
      nodes_(nodes),
      grace_(grace),
      say_(std::move(say)) {}

Verdict Supervisor::watch(RankGroup& ranks) {
  for (;;) {
    ranks.read();
    take_signals();
    take_ended(ranks);
    take_notices(ranks);
    take_trouble();
    keep_time(ranks);
    if (!ranks.running() && !said_ended_) {
      said_ended_ = true;
      agents_.post({.kind = Notice::Kind::ended, .generation = generation_, .number = asked_code_});
      continue;
    }
    if (said_ended_ && (nodes_ended_ == nodes_ || verdict_.alone)) break;
    wait(ranks);
  }
  ranks.finish();
  pass_judgement();
  return verdict_;
}

void Supervisor::wait(const RankGroup& ranks) {
  std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0}, {agents_.descriptor(), POLLIN, 0}};
  ranks.add_to(polled);
  Clock::time_point until = Clock::time_point::max();
  if (kill_at_ && !killed_) until = *kill_at_;
  if (end_at_) until = std::min(until, *end_at_);
  ::poll(polled.data(), polled.size(),
         until == Clock::time_point::max() ? -1 : parallel::poll_timeout(until));
  agents_.clear();
}

void Supervisor::take_signals() {
  while (const std::optional<int> signal = signals_.take())
    if (*signal != SIGCHLD)
      agents_.post({.kind = Notice::Kind::signal, .generation = generation_, .number = *signal});
}

void Supervisor::take_ended(RankGroup& ranks) {
  for (const EndedRank& one : ranks.take_ended()) {
    const int code = one.ending.exit_code();
    // 75 says it by itself. A shell's code for a signal says so where one was sent to all.
    const bool as_asked =
        code == kRequeue || (stops_ > 0 && one.ending.signal == 0 &&
                             (code == code_of_signal(SIGINT) || code == code_of_signal(SIGHUP)));
    if (as_asked) {
      if (asked_code_ != kRequeue) asked_code_ = code;
      // Its connection broke because it went, at once, when it was asked to.
      made_room_.insert(one.rank);
      if (suspect_ && suspect_->rank == one.rank) {
        suspect_.reset();
        if (failures_.empty()) end_at_.reset();
      }
    }
    // What we have ended has not failed.
    const bool by_us =
        (kill_at_ && one.ending.signal == SIGTERM) || (killed_ && one.ending.signal == SIGKILL);
    // Who is asked to end while it still loads goes at once, and the others notice.
    if (code == 0 || by_us || asked_code_ != 0) continue;
    agents_.post({.kind = Notice::Kind::failed,
                  .generation = generation_,
                  .rank = one.rank,
                  .number = code,
                  .text = report(one, ranks.last_lines(one.rank))});
  }
}

void Supervisor::take_notices(RankGroup& ranks) {
  // Every node stops at the same notice. One that comes after is of the next generation, where a
  // signal counts still.
  while (nodes_ended_ < nodes_) {
    const std::optional<Notice> notice = agents_.take();
    if (!notice) return;
    const bool is_late = notice->generation < generation_ && notice->kind == Notice::Kind::signal;
    if (notice->generation == generation_ || is_late) take(*notice, ranks);
  }
}

void Supervisor::take(const Notice& notice, RankGroup& ranks) {
  switch (notice.kind) {
    case Notice::Kind::signal:
      ranks.signal(notice.number);
      // Ranks take their time to save. Who asks once more does not want to wait for ever.
      if (++stops_ == 2) end_ranks(ranks);
      return;
    case Notice::Kind::suspect:
      if (made_room_.contains(notice.rank)) return;
      suspect_ = notice;
      suspect_came_first_ = failures_.empty();
      return end_within(kSuspicionWaits);
    case Notice::Kind::failed:
      failures_.push_back(notice);
      return end_within(kNewsTakes);
    case Notice::Kind::ended:
      ++nodes_ended_;
      if (notice.number != 0) verdict_.exit_code = notice.number;
      return;
  }
}

void Supervisor::take_trouble() {
  if (verdict_.alone || nodes_ended_ == nodes_) return;
  const std::optional<parallel::Trouble> trouble = agents_.trouble();
  if (!trouble) return;
  verdict_.alone = true;
  say_("the nodes cannot go on together: " + trouble->reason);
  end_within(kNewsTakes);
}

void Supervisor::keep_time(RankGroup& ranks) {
  const Clock::time_point now = Clock::now();
  if (end_at_ && now >= *end_at_) end_ranks(ranks);
  if (killed_ || !kill_at_ || now < *kill_at_) return;
  killed_ = true;
  if (ranks.running())
    say_(fmt::format("ranks that did not end within {} s are killed", grace_.count()));
  ranks.signal(SIGKILL);
}

void Supervisor::end_within(std::chrono::seconds time) {
  if (kill_at_) return;
  const Clock::time_point at = Clock::now() + time;
  end_at_ = end_at_ ? std::min(*end_at_, at) : at;
}

void Supervisor::end_ranks(RankGroup& ranks) {
  end_at_.reset();
  if (kill_at_) return;
  ranks.signal(SIGTERM);
  kill_at_ = Clock::now() + grace_;
}

void Supervisor::pass_judgement() {
  verdict_.stopped = stops_ > 0;
  verdict_.failed = verdict_.alone || suspect_ || !failures_.empty();
  if (!verdict_.failed) return;
  auto blamed = std::ranges::find_if(
      failures_, [&](const Notice& one) { return suspect_ && one.rank == suspect_->rank; });
  if (blamed == failures_.end()) {
    // One that hung and was killed has no failure of its own: those that there are follow from it.
    // But one that was lost after a failure was ended because of that.
    if (suspect_ && suspect_came_first_) say_(suspect_->text);
    if (!suspect_ || !suspect_came_first_ || suspect_->rank < 0) blamed = failures_.begin();
  }
  verdict_.exit_code = blamed == failures_.end() ? kFailed : blamed->number;
  if (blamed != failures_.end()) say_(blamed->text);
}

}  // namespace megatrain::launcher
