#pragma once
/// @file
/// A rank's connection to the rendezvous, with the thread that keeps it alive.

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "parallel/rendezvous/client.h"
#include "parallel/rendezvous/socket.h"
#include "parallel/rendezvous/wire.h"

namespace megatrain::parallel {

/// Connects to `endpoint` and introduces this rank, again and again until `deadline`.
/// @param silence  set to what the server says
/// @throws UserError when it is refused, or when nobody answers
FileDescriptor introduce(const ProcessPlace& place, const Endpoint& endpoint,
                         const RendezvousOptions& options, Clock::time_point deadline,
                         Milliseconds& silence);

class Rendezvous::Link {
 public:
  /// @param silence  of the server, after which the connection counts as broken
  Link(const ProcessPlace& place, FileDescriptor socket, Milliseconds silence,
       RendezvousOptions options);
  /// Says that this rank leaves, and waits shortly until that is heard.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  struct Answer {
    bool here = false;
    std::optional<std::string> refusal;             ///< why values are missing
    std::vector<std::string> values;                ///< of an exchange, by rank
    std::vector<std::optional<std::string>> found;  ///< of keys
  };
  /// Sends what `write` makes of a new request number and waits for the answer.
  /// @param what  for messages
  /// @throws RankLost, and Error when the server does not even refuse
  Answer ask(const std::function<std::string(std::uint32_t)>& write, std::string_view what,
             Milliseconds limit);
  /// Sends a message that has no answer.
  void tell(std::string message);
  void working_on(std::string_view doing, Milliseconds limit);
  void fail(std::string_view reason);
  [[nodiscard]] std::optional<Trouble> trouble() const;

 private:
  /// Who serves the rendezvous; -1: no rank does.
  [[nodiscard]] int server() const { return place_.served ? -1 : 0; }
  [[nodiscard]] std::string name_of_server() const;
  void run();
  [[nodiscard]] Clock::time_point beat(Clock::time_point now);
  bool read();
  void take(std::string_view message);
  bool flush();
  void raise(int rank, const std::string& reason);
  void depart();

  const ProcessPlace place_;
  const RendezvousOptions options_;
  const Milliseconds silence_;
  FileDescriptor socket_;
  Waker waker_;
  std::atomic<bool> stop_ = false;
  // Of the thread alone:
  MessageBuffer in_;
  Clock::time_point heard_, next_beat_;
  // Shared:
  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::string out_;
  std::map<std::uint32_t, Answer> answers_;
  std::uint32_t next_request_ = 0;
  std::optional<Trouble> trouble_;
  std::string doing_;
  std::optional<Clock::time_point> work_deadline_;
  Milliseconds work_limit_{0};
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace megatrain::parallel
