#include "parallel/rendezvous/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace megatrain::parallel {

namespace {

/// Of all keys and their values together.
constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxExchanges = 4096;
/// Exchanges and keys that one rank waits for at the same time, for each rank that there is.
constexpr std::size_t kMaxWaits = 256;
/// Missing ranks that an error names one by one.
constexpr int kNamed = 8;
constexpr std::uint64_t kLongestWait = std::uint64_t{7} * 24 * 3600 * 1000;

Clock::time_point deadline_of(std::uint64_t milliseconds, Clock::time_point now) {
  return now + Milliseconds(std::min(milliseconds, kLongestWait));
}

}  // namespace

Registry::Registry(Party party, Milliseconds silence, Clock::time_point now)
    : party_(std::move(party)),
      silence_(silence),
      members_(static_cast<std::size_t>(party_.world)),
      next_beat_(now) {}

std::optional<std::string> Registry::mismatch(MessageReader& hello, int& rank, bool& may_pass,
                                              Member& comer) const {
  const std::uint32_t version = hello.u32();
  if (version != kProtocolVersion)
    return fmt::format(
        "it speaks version {} of the protocol, this rendezvous version {}: use the "
        "same MegaTrain on all nodes",
        version, kProtocolVersion);
  const std::string run_id = hello.text(kMaxName);
  const std::uint32_t world = hello.u32();
  comer.configuration = hello.u64();
  const std::uint32_t generation = hello.u32();
  const std::uint32_t number = hello.u32();
  comer.host = printable(hello.text(kMaxName));
  comer.process = hello.u64();
  hello.end();
  if (run_id != party_.run_id)
    return fmt::format("it belongs to run '{}', this rendezvous to run '{}'", printable(run_id),
                       party_.run_id);
  if (generation != static_cast<std::uint32_t>(party_.generation)) {
    // After a restart the newcomers may be here before the old rendezvous is gone.
    may_pass = generation > static_cast<std::uint32_t>(party_.generation);
    return fmt::format("it is of generation {}, this rendezvous of generation {}{}", generation,
                       party_.generation, may_pass ? "" : ": it should have ended with its own");
  }
  if (world != static_cast<std::uint32_t>(party_.world))
    return fmt::format("it counts {} {}s, this rendezvous {}", world, party_.noun, party_.world);
  if (number >= world) return fmt::format("there is no {} {} of {}", party_.noun, number, world);
  rank = static_cast<int>(number);
  if (party_.configuration && *party_.configuration != comer.configuration)
    return fmt::format(
        "its configuration has hash {:016x}, that of this run {:016x}: all {}s need the "
        "same options and files",
        comer.configuration, *party_.configuration, party_.noun);
  const Member& known = member(rank);
  if (known.state == State::present) return fmt::format("{} is here already", who(rank));
  if (known.state != State::absent)
    return fmt::format("{} was here already and is gone", who(rank));
  if (trouble_) return fmt::format("this generation has ended: {}", trouble_->reason);
  return std::nullopt;
}

bool Registry::admit(int peer, std::string_view hello, Clock::time_point now) {
  int rank = -1;
  bool may_pass = false;
  Member comer;
  try {
    MessageReader reader(hello);
    if (reader.kind() != Kind::hello || reader.raw(kMagic.size()) != kMagic)
      throw WireError("it does not speak the rendezvous protocol");
    if (const auto reason = mismatch(reader, rank, may_pass, comer)) {
      refuse(peer, rank, *reason, may_pass);
      return false;
    }
  } catch (const WireError& error) {
    refusals_.emplace_back(error.what());
    outputs_.push_back({peer, {}, true});
    return false;
  }
  comer.state = State::present;
  comer.peer = peer;
  comer.heard = now;
  if (!party_.configuration) party_.configuration = comer.configuration;
  member(rank) = std::move(comer);
  ranks_[peer] = rank;
  send(rank,
       MessageWriter(Kind::welcome).u32(static_cast<std::uint32_t>(silence_.count())).finish());
  return true;
}

void Registry::refuse(int peer, int rank, const std::string& reason, bool may_pass) {
  if (rank >= 0 && member(rank).state == State::absent) member(rank).refusal = reason;
  refusals_.push_back(rank < 0 ? reason : fmt::format("{} {}: {}", party_.noun, rank, reason));
  outputs_.push_back({peer,
                      MessageWriter(Kind::reject)
                          .text(std::string_view(reason).substr(0, kMaxText))
                          .u32(may_pass ? 1 : 0)
                          .finish(),
                      true});
}

void Registry::receive(int peer, std::string_view message, Clock::time_point now) {
  const auto found = ranks_.find(peer);
  if (found == ranks_.end()) return;  // it is on its way out
  const int rank = found->second;
  MessageReader reader(message);
  member(rank).heard = now;
  if (trouble_ && reader.kind() != Kind::leave) return;  // it hears of it, or has already
  switch (reader.kind()) {
    case Kind::set:
      return set(rank, reader);
    case Kind::get:
      return get(rank, reader, now);
    case Kind::exchange:
      return exchange(rank, reader, now);
    case Kind::post:
      return post(rank, reader);
    case Kind::beat:
      member(rank).doing = printable(reader.text(kMaxText));
      return reader.end();
    case Kind::fail:
      return raise(rank, fmt::format("{} failed: {}", who(rank), printable(reader.text(kMaxText))));
    case Kind::leave:
      return leave(rank);
    case Kind::late:
      return inquire(rank, reader, now);
    case Kind::standing:
      member(rank).standing = reader.u64();
      member(rank).doing = printable(reader.text(kMaxText));
      return reader.end();
    default:
      throw WireError("a message of an unknown kind");
  }
}

void Registry::set(int rank, MessageReader& message) {
  const std::uint32_t request = message.u32();
  std::vector<std::pair<std::string, std::string>> entries;
  for (std::uint32_t left = message.u32(); left > 0; --left) {
    std::string key = message.text(kMaxName);
    entries.emplace_back(std::move(key), message.text(kMaxValue));
  }
  message.end();
  for (auto& [key, value] : entries)
    if (!keep(key, std::move(value)))
      return answer_refused({rank, request, {}}, "the store of this rendezvous is full");
  send(rank, MessageWriter(Kind::done).u32(request).finish());
}

bool Registry::keep(const std::string& key, std::string value) {
  const auto old = keys_.find(key);
  const std::size_t freed = old == keys_.end() ? 0 : key.size() + old->second.size();
  if (key_bytes_ - freed + key.size() + value.size() > kMaxKeyBytes) return false;
  key_bytes_ += key.size() + value.size() - freed;
  keys_[key] = std::move(value);
  const auto waits = key_waits_.find(key);
  if (waits == key_waits_.end()) return true;
  for (const std::uint64_t number : waits->second) {
    const auto read = reads_.find(number);
    --member(read->second.wait.rank).waits;
    if (--read->second.missing > 0) continue;
    answer(read->second, "");
    reads_.erase(read);
  }
  key_waits_.erase(waits);
  return true;
}

void Registry::get(int rank, MessageReader& message, Clock::time_point now) {
  Read read;
  read.wait.rank = rank;
  read.wait.request = message.u32();
  read.wait.deadline = deadline_of(message.u64(), now);
  for (std::uint32_t left = message.u32(); left > 0; --left)
    read.keys.push_back(message.text(kMaxName));
  message.end();
  std::vector<std::string> unset = read.keys;
  std::erase_if(unset, [&](const std::string& key) { return keys_.contains(key); });
  if (unset.empty()) return answer(read, "");
  read.missing = unset.size();
  begin_wait(rank, read.missing);
  for (const std::string& key : unset) key_waits_[key].push_back(next_read_);
  reads_.emplace(next_read_++, std::move(read));
}

/// Answers those whose time is over with what is there.
void Registry::give_up_reads(Clock::time_point now) {
  std::erase_if(reads_, [&](const auto& entry) {
    const auto& [number, read] = entry;
    if (now < read.wait.deadline) return false;
    member(read.wait.rank).waits -= read.missing;
    std::string reason;
    for (const std::string& key : read.keys) {
      const auto waits = key_waits_.find(key);
      if (waits == key_waits_.end()) continue;
      std::erase(waits->second, number);
      if (waits->second.empty()) key_waits_.erase(waits);
      if (reason.empty()) reason = fmt::format("nobody has set '{}'", printable(key));
    }
    if (read.missing > 1) reason += fmt::format(" and {} more", read.missing - 1);
    const std::string absent = missing([&](int r) { return member(r).state != State::absent; });
    if (!absent.empty()) reason += "; missing: " + absent;
    answer(read, reason);
    return true;
  });
}

void Registry::answer(const Read& read, std::string_view reason) {
  MessageWriter writer(Kind::found);
  writer.u32(read.wait.request)
      .text(reason.substr(0, kMaxText))
      .u32(static_cast<std::uint32_t>(read.keys.size()));
  std::size_t bytes = 0;
  for (const std::string& key : read.keys) {
    const auto found = keys_.find(key);
    const bool is_here = found != keys_.end();
    writer.u32(is_here ? 1 : 0);
    if (is_here) writer.text(found->second);
    bytes += 2 * sizeof(std::uint32_t) + (is_here ? found->second.size() : 0);
    if (bytes > kMaxValue + kMaxName)
      return answer_refused(read.wait, "the values of its keys are too much for one answer");
  }
  send(read.wait.rank, writer.finish());
}

void Registry::exchange(int rank, MessageReader& message, Clock::time_point now) {
  const std::uint32_t request = message.u32();
  const std::string name = message.text(kMaxName);
  std::string value = message.text(kMaxExchanged);
  const std::uint64_t milliseconds = message.u64();
  message.end();
  if (exchanges_.size() >= kMaxExchanges && !exchanges_.contains(name))
    throw WireError("it opened too many exchanges");
  Exchange& exchange = exchanges_[name];
  exchange.values.resize(members_.size());
  std::optional<std::string>& mine = exchange.values[static_cast<std::size_t>(rank)];
  const Wait wait{rank, request, deadline_of(milliseconds, now)};
  if (mine) return answer_refused(wait, "this rank has given its value already");
  mine = std::move(value);
  ++exchange.count;
  member(rank).doing = fmt::format("waiting at '{}'", printable(name));
  begin_wait(rank, 1);
  exchange.waits.push_back(wait);
  if (exchange.count < party_.world) {
    // Nobody waits for who does not come back.
    for (int other = 0; other < party_.world; ++other)
      if (member(other).state == State::left && !exchange.values[static_cast<std::size_t>(other)])
        exchange.waits.back().deadline = now;
    return;
  }
  for (const Wait& one : exchange.waits) {
    MessageWriter writer(Kind::values);
    writer.u32(one.request).u32(static_cast<std::uint32_t>(exchange.values.size()));
    for (const std::optional<std::string>& part : exchange.values) writer.text(*part);
    --member(one.rank).waits;
    member(one.rank).doing.clear();
    send(one.rank, writer.finish());
  }
  exchanges_.erase(name);
}

void Registry::post(int rank, MessageReader& message) {
  const std::string text = message.text(kMaxExchanged);
  message.end();
  for (int other = 0; other < party_.world; ++other)
    send(other,
         MessageWriter(Kind::posted).u32(static_cast<std::uint32_t>(rank)).text(text).finish());
}

void Registry::leave(int rank) {
  Member& leaver = member(rank);
  send(rank, {}, true);
  ranks_.erase(leaver.peer);
  leaver.state = State::left;
  leaver.doing = "it has left";
  for (auto& [name, exchange] : exchanges_)
    if (!exchange.values[static_cast<std::size_t>(rank)])
      for (Wait& wait : exchange.waits) wait.deadline = {};
}

void Registry::inquire(int rank, MessageReader& message, Clock::time_point now) {
  const std::uint64_t milliseconds = message.u64();
  const std::string doing = printable(message.text(kMaxText));
  message.end();
  if (inquiry_) return;
  inquiry_ = {rank,
              fmt::format("for {:.3g} s it has been at: {}",
                          static_cast<double>(milliseconds) / 1e3, doing),
              now + silence_ * kBeatsInInquiry / kBeatsInSilence};
  for (int other = 0; other < party_.world; ++other) {
    member(other).standing.reset();
    send(other, MessageWriter(Kind::inquiry).finish());
  }
}

void Registry::judge() {
  const Inquiry inquiry = *std::exchange(inquiry_, {});
  const std::string waiting = fmt::format("{} waits; {}", who(inquiry.late), inquiry.at);
  // Who is not here any more has left, or has ended this by being lost.
  int last = -1;
  for (int rank = 0; rank < party_.world; ++rank) {
    const Member& one = member(rank);
    if (one.state != State::present) continue;
    if (!one.standing)
      return raise(rank, fmt::format("{} was lost: it does not answer; {}", who(rank), waiting));
    if (last < 0 || *one.standing < *member(last).standing) last = rank;
  }
  if (last < 0) return;
  const Member& late = member(inquiry.late);
  if (late.state == State::present && *late.standing == *member(last).standing)
    return raise(inquiry.late,
                 fmt::format("{} failed: it makes no progress; {}", who(inquiry.late), inquiry.at));
  raise(last, fmt::format("{} failed: it makes no progress at: {}; {}", who(last),
                          member(last).doing, waiting));
}

void Registry::lose(int peer, std::string_view reason) {
  const auto found = ranks_.find(peer);
  if (found == ranks_.end()) return;
  const int rank = found->second;
  ranks_.erase(found);
  if (member(rank).state != State::present) return;
  std::string text = fmt::format("{} was lost: {}", who(rank), reason);
  member(rank).state = State::lost;
  raise(rank, text);
}

void Registry::raise(int rank, const std::string& reason) {
  if (trouble_) return;  // what follows is its consequence
  trouble_ = Trouble{rank, reason};
  key_waits_.clear();
  reads_.clear();
  exchanges_.clear();
  for (int other = 0; other < party_.world; ++other)
    send(other, MessageWriter(Kind::trouble)
                    .u32(static_cast<std::uint32_t>(rank))
                    .text(std::string_view(reason).substr(0, kMaxText))
                    .finish());
}

void Registry::tick(Clock::time_point now) {
  if (now >= next_beat_) {
    next_beat_ = now + silence_ / kBeatsInSilence;
    for (int rank = 0; rank < party_.world; ++rank) send(rank, MessageWriter(Kind::beat).finish());
  }
  for (int rank = 0; rank < party_.world && !trouble_; ++rank) {
    Member& one = member(rank);
    if (one.state != State::present || now - one.heard < silence_) continue;
    outputs_.push_back({one.peer, {}, true});
    lose(one.peer, fmt::format("nothing was heard of it for {:.3g} s",
                               static_cast<double>(silence_.count()) / 1e3));
  }
  const auto answers = [](const Member& one) {
    return one.state != State::present || one.standing;
  };
  if (inquiry_ && !trouble_ && (now >= inquiry_->until || std::ranges::all_of(members_, answers)))
    judge();
  give_up_reads(now);
  for (auto& [name, exchange] : exchanges_)
    std::erase_if(exchange.waits, [&](const Wait& wait) {
      if (now < wait.deadline) return false;
      --member(wait.rank).waits;
      answer_refused(
          wait, fmt::format("missing: {}", missing([&](int rank) {
                              return exchange.values[static_cast<std::size_t>(rank)].has_value();
                            })));
      return true;
    });
}

Clock::time_point Registry::next_tick() const {
  Clock::time_point next = next_beat_;
  if (inquiry_) next = std::min(next, inquiry_->until);
  for (const auto& [number, read] : reads_) next = std::min(next, read.wait.deadline);
  for (const auto& [name, exchange] : exchanges_)
    for (const Wait& wait : exchange.waits) next = std::min(next, wait.deadline);
  return next;
}

std::vector<Registry::Output> Registry::take_outputs() { return std::exchange(outputs_, {}); }

std::vector<std::string> Registry::take_refusals() { return std::exchange(refusals_, {}); }

int Registry::present() const {
  return static_cast<int>(std::ranges::count(members_, State::present, &Member::state));
}

void Registry::send(int rank, std::string bytes, bool close) {
  if (member(rank).state == State::present)
    outputs_.push_back({member(rank).peer, std::move(bytes), close});
}

void Registry::answer_refused(const Wait& wait, std::string_view reason) {
  send(wait.rank,
       MessageWriter(Kind::refused).u32(wait.request).text(reason.substr(0, kMaxText)).finish());
}

void Registry::begin_wait(int rank, std::size_t count) {
  member(rank).waits += count;
  if (member(rank).waits > kMaxWaits * members_.size())
    throw WireError("too many of its requests wait");
}

std::string Registry::who(int rank) const {
  const Member& one = member(rank);
  return one.state == State::absent
             ? fmt::format("{} {}", party_.noun, rank)
             : fmt::format("{} {} (process {} on {})", party_.noun, rank, one.process, one.host);
}

std::string Registry::missing(const std::function<bool(int)>& is_here) const {
  std::string text;
  int count = 0;
  for (int rank = 0; rank < party_.world; ++rank) {
    if (is_here(rank)) continue;
    if (++count > kNamed) continue;
    const Member& one = member(rank);
    text += count == 1 ? "" : ", ";
    text += who(rank);
    if (!one.refusal.empty() && one.state == State::absent)
      text += fmt::format(" (it was refused: {})", one.refusal);
    else if (one.state == State::absent)
      text += " (it has not come)";
    else if (!one.doing.empty())
      text += fmt::format(" ({})", one.doing);
  }
  if (count > kNamed) text += fmt::format(" and {} more", count - kNamed);
  return text;
}

}  // namespace megatrain::parallel
