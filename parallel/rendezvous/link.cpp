#include "parallel/rendezvous/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace megatrain::parallel {

namespace {

/// Pauses between attempts to connect.
constexpr Milliseconds kFirstPause{20};
constexpr Milliseconds kLongestPause{1000};
/// What an answer may take beyond the limit that the server itself keeps.
constexpr Milliseconds kGrace{5000};
/// How long leaving may take.
constexpr Milliseconds kDeparture{2000};
/// How long what answers at the endpoint has to say who it is.
constexpr Milliseconds kIntroduction{5000};

/// Waits for one message and takes nothing of what follows it. @returns nothing, with `reason` set,
/// when none comes
std::optional<std::string> await_message(const FileDescriptor& socket, Clock::time_point deadline,
                                         std::string& reason) {
  MessageBuffer in(kMaxHello);
  std::array<char, kMaxHello> bytes;
  while (Clock::now() < deadline) {
    pollfd wait{socket.get(), POLLIN, 0};
    if (::poll(&wait, 1, poll_timeout(deadline)) <= 0) continue;
    const Transfer got =
        receive(socket, std::span(bytes).first(std::min(in.lacks(), bytes.size())));
    in.append({bytes.data(), got.bytes});
    if (std::optional<std::string> message = in.next()) return message;
    if (got.closed) {
      reason = "it closed the connection without an answer";
      return std::nullopt;
    }
  }
  reason = "it does not answer";
  return std::nullopt;
}

std::string hello_of(const ProcessPlace& place, std::uint64_t configuration) {
  return MessageWriter(Kind::hello)
      .u32(kProtocolVersion)
      .text(place.run_id)
      .u32(static_cast<std::uint32_t>(place.world))
      .u64(configuration)
      .u32(static_cast<std::uint32_t>(place.generation))
      .u32(static_cast<std::uint32_t>(place.rank))
      .text(host_name())
      .u64(static_cast<std::uint64_t>(::getpid()))
      .finish();
}

/// One attempt. @returns no handle, with `reason` set, when it may be tried again
FileDescriptor introduce_once(const ProcessPlace& place, const Endpoint& endpoint,
                              const RendezvousOptions& options, Clock::time_point deadline,
                              std::string& reason, Milliseconds& silence) {
  FileDescriptor socket = connect_to(endpoint, deadline, reason);
  if (!socket) return {};
  // A fresh connection takes as little as this at once.
  if (send(socket, hello_of(place, options.configuration)).closed) return {};
  try {
    const auto answer =
        await_message(socket, std::min(deadline, Clock::now() + kIntroduction), reason);
    if (!answer) return {};
    MessageReader reader(*answer);
    if (reader.kind() == Kind::welcome) {
      silence = Milliseconds(reader.u32());
      return socket;
    }
    if (reader.kind() != Kind::reject) throw WireError("an unexpected answer");
    const std::string refusal = printable(reader.text(kMaxText));
    reason = "it refuses: " + refusal;
    if (reader.u32() == 0)
      throw UserError(fmt::format("{} {} was refused by the rendezvous at {}: {}", options.noun,
                                  place.rank, to_text(endpoint), refusal));
  } catch (const WireError&) {
    reason = "what answers there is no rendezvous of MegaTrain";
  }
  return {};
}

}  // namespace

FileDescriptor introduce(const ProcessPlace& place, const Endpoint& endpoint,
                         const RendezvousOptions& options, Clock::time_point deadline,
                         Milliseconds& silence) {
  const Clock::time_point begin = Clock::now();
  std::string reason = "it does not answer";
  Milliseconds pause = kFirstPause;
  for (;;) {
    FileDescriptor socket = introduce_once(place, endpoint, options, deadline, reason, silence);
    if (socket) return socket;
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  const auto waited = std::chrono::duration<double>(Clock::now() - begin).count();
  throw UserError(fmt::format(
      "{} {} could not join the rendezvous at {} within {:.3g} s ({}): {}; look whether it runs "
      "and whether that address and port can be reached from here",
      options.noun, place.rank, to_text(endpoint), waited, reason,
      place.served ? "megatrain launch on node 0 is missing"
                   : options.noun + " 0, which serves it, is missing"));
}

Rendezvous::Link::Link(const ProcessPlace& place, FileDescriptor socket, Milliseconds silence,
                       RendezvousOptions options)
    : place_(place),
      options_(std::move(options)),
      silence_(silence),
      socket_(std::move(socket)),
      in_(std::max(kMaxValue, static_cast<std::size_t>(place.world) * (kMaxExchanged + 4)) +
          kMaxName + kMaxText + 64),
      heard_(Clock::now()),
      next_beat_(heard_),
      thread_([this] { run(); }) {}

Rendezvous::Link::~Link() {
  tell(MessageWriter(Kind::leave).finish());
  stop_ = true;
  waker_.wake();
  thread_.join();
}

Rendezvous::Link::Answer Rendezvous::Link::ask(
    const std::function<std::string(std::uint32_t)>& write, std::string_view what,
    Milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return trouble_.has_value(); };
  if (is_over()) throw RankLost(*trouble_);
  const std::uint32_t request = next_request_++;
  Answer& answer = answers_[request];
  out_ += write(request);
  waker_.wake();
  answered_.wait_until(lock, Clock::now() + limit + kGrace,
                       [&] { return answer.here || is_over(); });
  Answer got = std::move(answer);
  answers_.erase(request);
  if (is_over() && (!got.here || got.refusal)) throw RankLost(*trouble_);
  if (got.here) return got;
  throw Error(fmt::format("{} {}: {} got no answer within {:.3g} s", options_.noun, place_.rank,
                          what, static_cast<double>(limit.count()) / 1e3));
}

void Rendezvous::Link::tell(std::string message) {
  const std::lock_guard lock(mutex_);
  out_ += message;
  waker_.wake();
}

void Rendezvous::Link::working_on(std::string_view doing, Milliseconds limit) {
  const std::lock_guard lock(mutex_);
  doing_ = doing.substr(0, kMaxText);
  work_limit_ = limit;
  work_deadline_.reset();
  if (limit.count() > 0) work_deadline_ = Clock::now() + limit;
  waker_.wake();
}

void Rendezvous::Link::fail(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (trouble_) return;
  trouble_ =
      Trouble{place_.rank, fmt::format("{} {} failed: {}", options_.noun, place_.rank, reason)};
  out_ += MessageWriter(Kind::fail).text(reason.substr(0, kMaxText)).finish();
  waker_.wake();
  answered_.notify_all();
}

std::optional<Trouble> Rendezvous::Link::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void Rendezvous::Link::run() {
  bool open = true;
  while (open && !stop_) {
    const Clock::time_point wake = beat(Clock::now());
    bool writes = false;
    {
      const std::lock_guard lock(mutex_);
      writes = !out_.empty();
    }
    std::array<pollfd, 2> polled{
        {{waker_.descriptor(), POLLIN, 0},
         {socket_.get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0}}};
    ::poll(polled.data(), polled.size(), poll_timeout(wake));
    if (polled[0].revents != 0) waker_.clear();
    if (stop_) break;
    if ((polled[1].revents & ~POLLOUT) != 0) open = read();
    if (open && !flush()) open = false;
    if (open && Clock::now() - heard_ >= silence_) {
      raise(server(),
            fmt::format("nothing was heard of the rendezvous at {} for {:.3g} s: {} hangs, or "
                        "cannot be reached any more",
                        to_text(place_.rendezvous), static_cast<double>(silence_.count()) / 1e3,
                        name_of_server()));
      open = false;
    }
  }
  if (open)
    depart();
  else if (!stop_)
    raise(server(), fmt::format("the rendezvous at {} is gone: {} has ended",
                                to_text(place_.rendezvous), name_of_server()));
}

std::string Rendezvous::Link::name_of_server() const {
  return place_.served ? "megatrain launch on node 0" : options_.noun + " 0";
}

/// Says that this rank lives, and looks after its watchdog. @returns when to do so again
Clock::time_point Rendezvous::Link::beat(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now >= next_beat_) {
    out_ += MessageWriter(Kind::beat).text(doing_).finish();
    next_beat_ = now + silence_ / kBeatsInSilence;
  }
  Clock::time_point wake = std::min(next_beat_, heard_ + silence_);
  if (work_deadline_ && now >= *work_deadline_) {
    // This rank may only wait for another: who serves finds out for which.
    out_ += MessageWriter(Kind::late)
                .u64(static_cast<std::uint64_t>(work_limit_.count()))
                .text(doing_)
                .finish();
    work_deadline_.reset();
  }
  if (work_deadline_) wake = std::min(wake, *work_deadline_);
  return wake;
}

bool Rendezvous::Link::read() {
  std::array<char, 65536> bytes;
  const Transfer got = receive(socket_, bytes);
  if (got.bytes > 0) heard_ = Clock::now();
  try {
    in_.append({bytes.data(), got.bytes});
    while (const std::optional<std::string> message = in_.next()) take(*message);
  } catch (const WireError& error) {
    raise(server(), fmt::format("the rendezvous at {} sent what it should not: {}",
                                to_text(place_.rendezvous), error.what()));
    return false;
  }
  return !got.closed;
}

void Rendezvous::Link::take(std::string_view message) {
  MessageReader reader(message);
  Answer answer;
  answer.here = true;
  std::uint32_t request = 0;
  switch (reader.kind()) {
    case Kind::beat:
      return;
    case Kind::inquiry: {
      const std::uint64_t standing = options_.progress ? options_.progress() : 0;
      const std::lock_guard lock(mutex_);
      out_ += MessageWriter(Kind::standing).u64(standing).text(doing_).finish();
      return;
    }
    case Kind::trouble: {
      const auto rank = static_cast<int>(reader.u32());
      return raise(rank, printable(reader.text(kMaxText)));
    }
    case Kind::posted: {
      const auto rank = static_cast<int>(reader.u32());
      const std::string text = reader.text(kMaxExchanged);
      if (options_.on_post) options_.on_post(rank, text);
      return;
    }
    case Kind::done:
      request = reader.u32();
      break;
    case Kind::found:
      request = reader.u32();
      if (std::string reason = reader.text(kMaxText); !reason.empty())
        answer.refusal = printable(reason);
      for (std::uint32_t left = reader.u32(); left > 0; --left) {
        const bool is_here = reader.u32() != 0;
        answer.found.push_back(is_here ? std::optional(reader.text(kMaxValue)) : std::nullopt);
      }
      break;
    case Kind::values: {
      request = reader.u32();
      if (reader.u32() != static_cast<std::uint32_t>(place_.world))
        throw WireError("values of another number of ranks");
      for (int rank = 0; rank < place_.world; ++rank)
        answer.values.push_back(reader.text(kMaxExchanged));
      break;
    }
    case Kind::refused:
      request = reader.u32();
      answer.refusal = printable(reader.text(kMaxText));
      break;
    default:
      throw WireError("a message of an unknown kind");
  }
  reader.end();
  const std::lock_guard lock(mutex_);
  // Whoever asked may have given up.
  if (const auto found = answers_.find(request); found != answers_.end())
    found->second = std::move(answer);
  answered_.notify_all();
}

bool Rendezvous::Link::flush() {
  const std::lock_guard lock(mutex_);
  while (!out_.empty()) {
    const Transfer sent = send(socket_, out_);
    if (sent.closed) return false;
    if (sent.bytes == 0) break;
    out_.erase(0, sent.bytes);
  }
  return true;
}

void Rendezvous::Link::raise(int rank, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (trouble_) return;
    trouble_ = Trouble{rank, reason};
    answered_.notify_all();
  }
  if (options_.on_trouble) options_.on_trouble({rank, reason});
}

/// Sends what is left and reads until the other side has closed: closing with something unread
/// would take back what was sent.
void Rendezvous::Link::depart() {
  const Clock::time_point deadline = Clock::now() + kDeparture;
  bool shut = false;
  std::array<char, 65536> bytes;
  while (Clock::now() < deadline) {
    if (!shut) {
      if (!flush()) return;
      const std::lock_guard lock(mutex_);
      shut = out_.empty();
      if (shut) ::shutdown(socket_.get(), SHUT_WR);
    }
    pollfd wait{socket_.get(), static_cast<short>(POLLIN | (shut ? 0 : POLLOUT)), 0};
    if (::poll(&wait, 1, poll_timeout(deadline)) > 0 && receive(socket_, bytes).closed) return;
  }
}

}  // namespace megatrain::parallel
