#pragma once
/// @file
/// Serves a rendezvous: a small store of keys, barriers, votes, and the news of who is lost.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "parallel/rendezvous/registry.h"
#include "parallel/rendezvous/socket.h"

namespace megatrain::parallel {

struct ServerOptions {
  Party party;
  std::string host;              ///< an address of this machine to serve at; empty: all
  std::uint16_t port = 0;        ///< 0: the system picks one
  Milliseconds silence{10'000};  ///< a rank that nothing is heard of for so long is lost
  /// Called once, from the server's thread, with what ended the work: a rank is lost, or says that
  /// it failed. The ranks hear of it later.
  std::function<void(const Trouble&)> on_trouble;
  Logger log;  ///< connections that are refused are warnings
};

/// One thread that sleeps until something happens. A peer that sends garbage, half a message, too
/// much, or reads nothing harms itself alone.
class RendezvousServer {
 public:
  /// Listens when it returns. @throws UserError when the port cannot be had
  explicit RendezvousServer(ServerOptions options);
  /// Closes all connections.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  /// Waits until every rank that came, but `others`, has left or is lost. @returns whether that is
  /// so
  bool wait_until_empty(Milliseconds limit, int others = 0) const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace megatrain::parallel
