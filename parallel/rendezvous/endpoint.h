#pragma once
/// @file
/// Where a rendezvous is served: a host and a TCP port.

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain::parallel {

struct Endpoint {
  std::string host;  ///< name, IPv4 or IPv6 address, without brackets
  std::uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};

/// "host:port", "[ipv6]:port".
std::string to_text(const Endpoint& endpoint);

/// Reads what to_text writes. Without ":port" the port is `default_port`.
/// @param where  for messages: "--rendezvous", "MEGATRAIN_RENDEZVOUS"
/// @throws UserError
Endpoint parse_endpoint(std::string_view text, std::string_view where, std::uint16_t default_port);

/// Whether the host is this machine under its own loopback address or name.
bool is_loopback(std::string_view host);

}  // namespace megatrain::parallel
