#include "parallel/rendezvous/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "parallel/rendezvous/link.h"

namespace megatrain::parallel {

namespace {

constexpr Milliseconds kBindPause{200};
constexpr Milliseconds kLinger{10'000};
/// After trouble, others have heard of it soon, and some will never leave.
constexpr Milliseconds kLingerInTrouble{1000};
/// A key is there or not, or something is wrong.
constexpr Milliseconds kStoreLimit{60'000};
/// What a text has around it in a message.
constexpr std::size_t kPerEntry = 4;

void require_fits(std::string_view what, std::size_t size, std::size_t limit) {
  if (size > limit)
    throw LogicError(
        fmt::format("internal error: {} of {} bytes; {} is the most", what, size, limit));
}

/// @throws Error where values are missing, with the reason
void require_whole(const auto& answer, std::string_view who, std::string_view what,
                   Milliseconds limit) {
  if (answer.refusal)
    throw Error(fmt::format("{}: {} (limit {:.3g} s): {}", who, what,
                            static_cast<double>(limit.count()) / 1e3, *answer.refusal));
}

auto get_message(std::span<const std::string> keys, Milliseconds limit) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    require_fits("a key", key.size(), kMaxName);
    bytes += key.size() + kPerEntry;
  }
  require_fits("the keys of a request", bytes, kMaxValue);
  return [keys, limit](std::uint32_t request) {
    MessageWriter writer(Kind::get);
    writer.u32(request)
        .u64(static_cast<std::uint64_t>(limit.count()))
        .u32(static_cast<std::uint32_t>(keys.size()));
    for (const std::string& key : keys) writer.text(key);
    return writer.finish();
  };
}

}  // namespace

Rendezvous::Rendezvous(const ProcessPlace& place, RendezvousOptions options)
    : place_(place), noun_(options.noun) {
  const Clock::time_point deadline = Clock::now() + options.join_limit;
  if (place.run_id.size() > kMaxName)
    throw UserError(
        fmt::format("the run id has {} bytes; {} is the most", place.run_id.size(), kMaxName));
  if (place.rank == 0 && !place.served) serve(deadline, options);
  // Whoever serves need not be reachable under the name that the others use.
  Endpoint endpoint = place_.rendezvous;
  if (server_ && !is_loopback(endpoint.host)) endpoint.host = "127.0.0.1";
  Milliseconds silence{0};
  FileDescriptor socket = introduce(place_, endpoint, options, deadline, silence);
  ends_ = ends_of(socket);
  link_ = std::make_unique<Link>(place_, std::move(socket), silence, std::move(options));
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  try {
    barrier("joining", std::max(left, Milliseconds(0)));
  } catch (const RankLost&) {
    throw;
  } catch (const Error& error) {
    // The others shall not think that this rank is to blame. Most find it out by themselves, now.
    if (server_) {
      server_->wait_until_empty(kLingerInTrouble, 1);
      link_->fail(error.what());
      link_.reset();
      server_->wait_until_empty(kLingerInTrouble);
    }
    throw UserError(
        fmt::format("{}; the meeting place is {}", error.what(), to_text(place_.rendezvous)));
  }
}

void Rendezvous::serve(Clock::time_point deadline, const RendezvousOptions& options) {
  const bool here_alone = place_.nodes == 1 && is_loopback(place_.rendezvous.host);
  for (;;) {
    try {
      server_.emplace(ServerOptions{.party = {.run_id = place_.run_id,
                                              .world = place_.world,
                                              .generation = place_.generation,
                                              .configuration = options.configuration,
                                              .noun = options.noun},
                                    .host = here_alone ? place_.rendezvous.host : "",
                                    .port = place_.rendezvous.port,
                                    .silence = options.silence,
                                    .on_trouble = {},
                                    .log = options.log});
      place_.rendezvous.port = server_->port();
      return;
    } catch (const UserError&) {
      // The generation before may still be at its end.
      if (Clock::now() + kBindPause >= deadline) throw;
      std::this_thread::sleep_for(kBindPause);
    }
  }
}

Rendezvous::~Rendezvous() {
  const bool trouble = link_->trouble().has_value();
  link_.reset();
  if (server_) server_->wait_until_empty(trouble ? kLingerInTrouble : kLinger);
}

std::string Rendezvous::who() const { return fmt::format("{} {}", noun_, rank()); }

void Rendezvous::set(std::string_view key, std::string_view value) {
  const KeyValueStore::Entry entry{std::string(key), std::string(value)};
  set_all({&entry, 1});
}

void Rendezvous::set_all(std::span<const KeyValueStore::Entry> entries) {
  if (entries.empty()) return;
  std::size_t bytes = 0;
  for (const auto& [key, value] : entries) {
    require_fits("a key", key.size(), kMaxName);
    require_fits("a value", value.size(), kMaxValue);
    bytes += key.size() + value.size() + 2 * kPerEntry;
  }
  // One key with the largest value goes too.
  require_fits("what a request sets", bytes, kMaxValue + kMaxName + 2 * kPerEntry);
  const std::string what = fmt::format("setting '{}'", entries.front().key);
  require_whole(link_->ask(
                    [&](std::uint32_t request) {
                      MessageWriter writer(Kind::set);
                      writer.u32(request).u32(static_cast<std::uint32_t>(entries.size()));
                      for (const auto& [key, value] : entries) writer.text(key).text(value);
                      return writer.finish();
                    },
                    what, kStoreLimit),
                who(), what, kStoreLimit);
}

std::string Rendezvous::get(std::string_view key, Milliseconds limit) {
  const std::string what = fmt::format("waiting for '{}'", key);
  const std::string keys(key);
  auto answer = link_->ask(get_message({&keys, 1}, limit), what, limit);
  require_whole(answer, who(), what, limit);
  return *std::move(answer.found.front());
}

std::optional<std::string> Rendezvous::find(std::string_view key, Milliseconds limit) {
  const std::string keys(key);
  return find_all({&keys, 1}, limit).front();
}

KeyValueStore::Values Rendezvous::find_all(std::span<const std::string> keys, Milliseconds limit) {
  if (keys.empty()) return {};
  const std::string what = fmt::format("'{}'", keys.front());
  auto answer = link_->ask(get_message(keys, limit), what, limit);
  // What is not there is no error; an answer without any keys is.
  if (answer.found.size() != keys.size()) require_whole(answer, who(), what, limit);
  return std::move(answer.found);
}

std::vector<std::string> Rendezvous::exchange(std::string_view name, std::string_view value,
                                              Milliseconds limit) {
  require_fits("an exchange's value", value.size(), kMaxExchanged);
  std::uint64_t use = 0;
  {
    const std::lock_guard lock(mutex_);
    use = uses_.try_emplace(std::string(name), 0).first->second++;
  }
  const std::string numbered = fmt::format("{}#{}", name, use);
  require_fits("an exchange's name", numbered.size(), kMaxName);
  const std::string what = fmt::format("'{}'", name);
  auto answer = link_->ask(
      [&](std::uint32_t request) {
        return MessageWriter(Kind::exchange)
            .u32(request)
            .text(numbered)
            .text(value)
            .u64(static_cast<std::uint64_t>(limit.count()))
            .finish();
      },
      what, limit);
  require_whole(answer, who(), what, limit);
  return std::move(answer.values);
}

void Rendezvous::barrier(std::string_view name, Milliseconds limit) { exchange(name, "", limit); }

bool Rendezvous::any(std::string_view name, bool value, Milliseconds limit) {
  return std::ranges::count(exchange(name, value ? "1" : "0", limit), "1") > 0;
}

bool Rendezvous::all(std::string_view name, bool value, Milliseconds limit) {
  return !any(name, !value, limit);
}

void Rendezvous::post(std::string_view text) {
  require_fits("a post", text.size(), kMaxExchanged);
  if (const auto trouble = link_->trouble()) throw RankLost(*trouble);
  link_->tell(MessageWriter(Kind::post).text(text).finish());
}

void Rendezvous::working_on(std::string_view doing, Milliseconds limit) {
  link_->working_on(doing, limit);
}

void Rendezvous::fail(std::string_view reason) { link_->fail(reason); }

std::optional<Trouble> Rendezvous::trouble() const { return link_->trouble(); }

}  // namespace megatrain::parallel
