#pragma once
/// @file
/// TCP sockets that close themselves, and what wakes a thread that waits for them.

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/file_descriptor.h"
#include "parallel/rendezvous/endpoint.h"

namespace megatrain::parallel {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Milliseconds from now until `when`, as poll takes them: rounded up, never negative.
int poll_timeout(Clock::time_point when);

/// Lets other threads end a poll().
class Waker {
 public:
  Waker();
  void wake() const;
  /// Call after poll() has said that it is readable.
  void clear() const;
  [[nodiscard]] int descriptor() const { return handle_.get(); }

 private:
  FileDescriptor handle_;
};

/// What one non-blocking read or write did.
struct Transfer {
  std::size_t bytes = 0;
  bool closed = false;  ///< by the other side, or broken
};

/// Both never block and never raise SIGPIPE.
Transfer receive(const FileDescriptor& socket, std::span<char> into);
Transfer send(const FileDescriptor& socket, std::string_view bytes);

/// A non-blocking listening socket.
/// @param host  a name or address of this machine; empty: all interfaces, IPv6 and IPv4
/// @param port  0: the system picks one
/// @throws UserError naming the endpoint and the system's reason
FileDescriptor listen_at(const std::string& host, std::uint16_t port);
/// The port that a listening socket has.
std::uint16_t port_of(const FileDescriptor& listener);

/// Takes one waiting connection, if there is one. @returns no handle when there is none
/// @param exhausted  set when the system has no descriptors left: try later
FileDescriptor accept_from(const FileDescriptor& listener, bool& exhausted);

/// Connects, to each address of the host in turn. Tries once.
/// @param reason  set to the system's reason when no address answers until `deadline`
FileDescriptor connect_to(const Endpoint& endpoint, Clock::time_point deadline,
                          std::string& reason);

/// Whether the host is this machine: one of its addresses can be served here.
/// @throws UserError naming the host and the system's reason when it has no address
bool is_here(const std::string& host);

/// The addresses of a connection, as numbers: where this side and the other can be reached.
struct Ends {
  std::string here, there;
};
Ends ends_of(const FileDescriptor& connection);

/// The name of this machine.
std::string host_name();

}  // namespace megatrain::parallel
