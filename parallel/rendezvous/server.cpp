#include "parallel/rendezvous/server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace megatrain::parallel {

namespace {

/// A connection has this long to say who it is, and later to take a refusal.
constexpr Milliseconds kIntroduction{5000};
/// Connections beyond the ranks that may be about to say who they are.
constexpr std::size_t kStrangers = 64;
/// What a rank may leave unread.
constexpr std::size_t kMaxUnread = std::size_t{64} << 20;
/// A message of a rank: a key's value and its fields.
constexpr std::size_t kMaxMessage = kMaxValue + kMaxName + 64;
/// How long no connection is taken after the system has run out of descriptors.
constexpr Milliseconds kExhausted{100};

struct Connection {
  FileDescriptor socket;
  MessageBuffer in{kMaxHello};
  std::string out;
  bool member = false;         ///< a rank
  bool closing = false;        ///< once `out` is sent
  Clock::time_point deadline;  ///< of who is no rank (yet, or any more)
};

}  // namespace

class RendezvousServer::Loop {
 public:
  explicit Loop(ServerOptions options)
      : options_(std::move(options)),
        listener_(listen_at(options_.host, options_.port)),
        port_(port_of(listener_)),
        registry_(options_.party, options_.silence, Clock::now()),
        thread_([this] { run(); }) {}

  ~Loop() {
    stop_ = true;
    waker_.wake();
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

  bool wait_until_empty(Milliseconds limit, int others) {
    std::unique_lock lock(mutex_);
    return left_.wait_for(lock, limit, [&] { return present_ <= others; });
  }

 private:
  void run() {
    std::vector<pollfd> polled;
    std::vector<int> peers;
    while (!stop_) {
      polled.assign({{waker_.descriptor(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
      peers.clear();
      Clock::time_point wake = registry_.next_tick();
      if (Clock::now() < accept_after_) {
        polled[1].fd = -1;
        wake = std::min(wake, accept_after_);
      }
      for (const auto& [peer, connection] : connections_) {
        const bool writes = !connection.out.empty();
        polled.push_back(
            {connection.socket.get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
        peers.push_back(peer);
        if (!connection.member) wake = std::min(wake, connection.deadline);
      }
      ::poll(polled.data(), polled.size(), poll_timeout(wake));
      if (polled[0].revents != 0) waker_.clear();
      // Reading comes first: after a pause of this machine, what was sent meanwhile counts.
      for (std::size_t i = 0; i < peers.size(); ++i)
        if ((polled[i + 2].revents & ~POLLOUT) != 0) read(peers[i]);
      if (polled[1].revents != 0) accept();
      registry_.tick(Clock::now());
      settle();
    }
  }

  void accept() {
    for (;;) {
      bool exhausted = false;
      FileDescriptor socket = accept_from(listener_, exhausted);
      if (exhausted) accept_after_ = Clock::now() + kExhausted;
      if (!socket) return;
      Connection connection;
      connection.socket = std::move(socket);
      connection.deadline = Clock::now() + kIntroduction;
      connections_.emplace(next_peer_++, std::move(connection));
      limit_strangers();
    }
  }

  /// Who comes and says nothing makes room for who comes later.
  void limit_strangers() {
    const auto is_stranger = [](const auto& entry) { return !entry.second.member; };
    const auto limit = static_cast<std::ptrdiff_t>(kStrangers) + options_.party.world;
    if (std::ranges::count_if(connections_, is_stranger) > limit)
      connections_.erase(std::ranges::find_if(connections_, is_stranger));
  }

  void read(int peer) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    std::array<char, 65536> bytes;
    const Transfer got = receive(connection.socket, bytes);
    try {
      connection.in.append({bytes.data(), got.bytes});
      while (!connection.closing) {
        const std::optional<std::string> message = connection.in.next();
        if (!message) break;
        take(peer, connection, *message);
      }
      if (connection.closing) connection.in = MessageBuffer(0);
    } catch (const WireError& error) {
      drop(peer, error.what());
      return;
    }
    if (got.closed) drop(peer, "its connection broke");
  }

  void take(int peer, Connection& connection, std::string_view message) {
    const Clock::time_point now = Clock::now();
    if (connection.member) {
      registry_.receive(peer, message, now);
    } else if (registry_.admit(peer, message, now)) {
      connection.member = true;
      connection.in.set_limit(kMaxMessage);
    } else {
      connection.closing = true;  // what it says further is not heard
    }
  }

  void drop(int peer, std::string_view reason) {
    registry_.lose(peer, reason);
    connections_.erase(peer);
  }

  /// Sends what the registry has to say, and makes known what has changed.
  void settle() {
    for (Registry::Output& output : registry_.take_outputs()) {
      const auto found = connections_.find(output.peer);
      if (found == connections_.end()) continue;
      Connection& connection = found->second;
      connection.out += output.bytes;
      if (!output.close) continue;
      connection.closing = true;
      connection.member = false;
      connection.deadline = Clock::now() + kIntroduction;
    }
    for (const std::string& refusal : registry_.take_refusals())
      options_.log.warning("rendezvous: a connection was refused: " + refusal);
    tell_trouble();
    flush();
    tell_trouble();
    const std::lock_guard lock(mutex_);
    present_ = registry_.present();
    left_.notify_all();
  }

  void tell_trouble() {
    if (!registry_.trouble() || told_) return;
    told_ = true;
    if (options_.on_trouble) options_.on_trouble(*registry_.trouble());
  }

  void flush() {
    std::vector<std::pair<int, std::string_view>> lost;
    const Clock::time_point now = Clock::now();
    for (auto& [peer, connection] : connections_) {
      while (!connection.out.empty()) {
        const Transfer sent = send(connection.socket, connection.out);
        connection.out.erase(0, sent.bytes);
        if (sent.closed) lost.emplace_back(peer, "its connection broke");
        if (sent.bytes == 0) break;
      }
      if (connection.out.size() > kMaxUnread) lost.emplace_back(peer, "it does not read");
      if ((connection.closing && connection.out.empty()) ||
          (!connection.member && now >= connection.deadline))
        lost.emplace_back(peer, "it left");
    }
    for (const auto& [peer, reason] : lost) {
      registry_.lose(peer, reason);
      connections_.erase(peer);
    }
  }

  ServerOptions options_;
  FileDescriptor listener_;
  std::uint16_t port_;
  Waker waker_;
  std::atomic<bool> stop_ = false;
  // Of the thread alone:
  Registry registry_;
  std::map<int, Connection> connections_;  ///< oldest first
  int next_peer_ = 0;
  Clock::time_point accept_after_;
  bool told_ = false;
  // Shared:
  std::mutex mutex_;
  std::condition_variable left_;
  int present_ = 0;
  std::thread thread_;  ///< last: it uses all of the above
};

RendezvousServer::RendezvousServer(ServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}

RendezvousServer::~RendezvousServer() = default;

std::uint16_t RendezvousServer::port() const { return loop_->port(); }

bool RendezvousServer::wait_until_empty(Milliseconds limit, int others) const {
  return loop_->wait_until_empty(limit, others);
}

}  // namespace megatrain::parallel
