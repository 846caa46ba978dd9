#include "launcher/process/rank_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace megatrain::launcher {

namespace {

parallel::Environment environment_of(const RankProgram& program,
                                     const parallel::ProcessPlace& place) {
  parallel::Environment environment = program.environment;
  for (const auto& [name, value] : own_environment(place)) environment[name] = value;
  return environment;
}

constexpr std::size_t kPiece = 65536;
/// More than a pipe can hold: all that a rank wrote before it ended.
constexpr std::size_t kWholePipe = std::size_t{2} << 20;

/// Reads what is there, but not much more than `most`: who never stops writing must not keep us
/// from the others, and from signals.
/// @returns whether the other end is open still
bool drain(int pipe, OutputStream stream, RankOutput& output, std::size_t most) {
  std::array<char, kPiece> bytes;
  for (std::size_t sum = 0; sum < most;) {
    const ssize_t count = ::read(pipe, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 && errno == EAGAIN;
    output.take(stream, {bytes.data(), static_cast<std::size_t>(count)});
    sum += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

RankGroup::Rank::Rank(const RankProgram& program, const parallel::ProcessPlace& place,
                      const std::optional<std::filesystem::path>& logs, const sigset_t& blocked,
                      Guard& guard, const RankLine& line)
    : number(place.rank),
      child(program.file, program.arguments, environment_of(program, place), blocked, guard),
      output(logs ? std::optional(*logs / fmt::format("rank-{}.log", place.rank)) : std::nullopt,
             [line, rank = place.rank](OutputStream stream, std::string_view text) {
               line(rank, stream, text);
             }) {}

RankGroup::RankGroup(const RankProgram& program, const std::vector<parallel::ProcessPlace>& places,
                     const std::optional<std::filesystem::path>& logs, const sigset_t& blocked,
                     Guard& guard, const RankLine& line) {
  for (const parallel::ProcessPlace& place : places)
    ranks_.emplace_back(program, place, logs, blocked, guard, line);
}

void RankGroup::add_to(std::vector<pollfd>& polled) const {
  for (const Rank& rank : ranks_)
    for (const int pipe : {rank.child.out(), rank.child.err()})
      if (pipe >= 0) polled.push_back({pipe, POLLIN, 0});
}

void RankGroup::read(Rank& rank, std::size_t most) {
  Child& child = rank.child;
  if (child.out() >= 0 && !drain(child.out(), OutputStream::out, rank.output, most))
    child.close_out();
  if (child.err() >= 0 && !drain(child.err(), OutputStream::err, rank.output, most))
    child.close_err();
}

void RankGroup::read() {
  for (Rank& rank : ranks_) read(rank, kPiece);
}

std::vector<EndedRank> RankGroup::take_ended() {
  std::vector<EndedRank> ended;
  for (Rank& rank : ranks_) {
    const std::optional<Ending> ending = rank.child.ended();
    if (!ending) continue;
    read(rank, kWholePipe);
    ended.push_back({rank.number, *ending});
  }
  return ended;
}

void RankGroup::signal(int number) {
  for (const Rank& rank : ranks_) rank.child.signal(number);
}

bool RankGroup::running() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.child.running(); });
}

std::string RankGroup::last_lines(int rank) const {
  const auto found = std::ranges::find(ranks_, rank, &Rank::number);
  return found == ranks_.end() ? "" : found->output.last_lines();
}

void RankGroup::finish() {
  for (Rank& rank : ranks_) {
    read(rank, kWholePipe);
    rank.output.finish();
  }
}

}  // namespace megatrain::launcher
