#include "parallel/rendezvous/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace megatrain::parallel {

namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, std::uint16_t port, int flags, std::string& reason) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                   std::to_string(port).c_str(), &hints, &found);
  if (status != 0) reason = ::gai_strerror(status);
  return {status == 0 ? found : nullptr, &::freeaddrinfo};
}

FileDescriptor open_socket(const addrinfo& address) {
  return FileDescriptor(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
}

void set_option(const FileDescriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

/// Waits until a connection that is under way stands. @returns 0, or the system's error
int finish_connect(const FileDescriptor& socket, Clock::time_point deadline) {
  for (;;) {
    pollfd wait{socket.get(), POLLOUT, 0};
    const int ready = ::poll(&wait, 1, poll_timeout(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (ready < 0 || ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      return errno;
    return error;
  }
}

}  // namespace

int poll_timeout(Clock::time_point when) {
  const auto left = std::chrono::ceil<Milliseconds>(when - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

Waker::Waker() : handle_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!handle_) throw Error("cannot make an event counter: " + reason_of(errno));
}

void Waker::wake() const {
  // It fails only where the counter is full, and then the thread is awake.
  [[maybe_unused]] const int status = ::eventfd_write(handle_.get(), 1);
}

void Waker::clear() const {
  eventfd_t count = 0;
  [[maybe_unused]] const int status = ::eventfd_read(handle_.get(), &count);
}

Transfer receive(const FileDescriptor& socket, std::span<char> into) {
  const ssize_t count = ::recv(socket.get(), into.data(), into.size(), 0);
  if (count > 0) return {static_cast<std::size_t>(count), false};
  return {0, count == 0 || (errno != EAGAIN && errno != EINTR)};
}

Transfer send(const FileDescriptor& socket, std::string_view bytes) {
  const ssize_t count = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0) return {static_cast<std::size_t>(count), false};
  return {0, errno != EAGAIN && errno != EINTR};
}

FileDescriptor listen_at(const std::string& host, std::uint16_t port) {
  std::string reason;
  const Addresses addresses = look_up(host, port, AI_PASSIVE, reason);
  // With all interfaces asked for, one IPv6 socket takes IPv4 too, where the machine has IPv6.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      FileDescriptor socket = open_socket(*one);
      if (!socket) {
        reason = reason_of(errno);
        continue;
      }
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, host.empty() ? 0 : 1);
      if (::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
          ::listen(socket.get(), SOMAXCONN) == 0)
        return socket;
      reason = reason_of(errno);
    }
  }
  throw UserError(fmt::format("cannot serve a rendezvous at {}: {}",
                              to_text({host.empty() ? "*" : host, port}), reason));
}

std::uint16_t port_of(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw Error("cannot tell the port of a socket: " + reason_of(errno));
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

FileDescriptor accept_from(const FileDescriptor& listener, bool& exhausted) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    exhausted = true;
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

FileDescriptor connect_to(const Endpoint& endpoint, Clock::time_point deadline,
                          std::string& reason) {
  reason = "it has no address";
  const Addresses addresses = look_up(endpoint.host, endpoint.port, AI_ADDRCONFIG, reason);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    FileDescriptor socket = open_socket(*one);
    if (!socket) {
      reason = reason_of(errno);
      continue;
    }
    int error = 0;
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS || error == EINTR) error = finish_connect(socket, deadline);
    if (error == 0) {
      set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    reason = reason_of(error);
  }
  return {};
}

bool is_here(const std::string& host) {
  std::string reason = "it has no address";
  const Addresses addresses = look_up(host, 0, 0, reason);
  if (!addresses)
    throw UserError(fmt::format("the host '{}' cannot be found from here ({})", host, reason));
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next)
    if (const FileDescriptor socket = open_socket(*one);
        socket && ::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
      return true;
  return false;
}

Ends ends_of(const FileDescriptor& connection) {
  const auto text = [&](auto ask) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    std::array<char, NI_MAXHOST> host{};
    if (ask(connection.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw Error("cannot tell the address of a connection: " + reason_of(errno));
    const int status = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(),
                                     host.size(), nullptr, 0, NI_NUMERICHOST);
    if (status != 0)
      throw Error(std::string("cannot write down the address of a connection: ") +
                  ::gai_strerror(status));
    return std::string(host.data());
  };
  return {text(::getsockname), text(::getpeername)};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace megatrain::parallel
