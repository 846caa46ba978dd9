#include "parallel/rendezvous/endpoint.h"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.h"

namespace megatrain::parallel {

std::string to_text(const Endpoint& endpoint) {
  return endpoint.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", endpoint.host, endpoint.port)
             : fmt::format("[{}]:{}", endpoint.host, endpoint.port);
}

Endpoint parse_endpoint(std::string_view text, std::string_view where, std::uint16_t default_port) {
  const auto refuse = [&](std::string_view why) {
    throw UserError(
        fmt::format("{}: '{}' is no host:port ({}); write for example node1:29500 or "
                    "[fd00::1]:29500",
                    where, text, why));
  };
  Endpoint endpoint{{}, default_port};
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse("the bracket is not closed");
    endpoint.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) refuse("after the bracket only :port may follow");
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    // Several colons without brackets: an IPv6 address, whose last group would look like a port.
    if (text.find(':', colon + 1) != std::string_view::npos)
      refuse("an IPv6 address stands in brackets");
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon);
  } else {
    endpoint.host = text;
  }
  if (endpoint.host.empty()) refuse("the host is missing");
  if (port.empty()) return endpoint;
  port.remove_prefix(1);
  const auto [rest, status] =
      std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (status != std::errc{} || rest != port.data() + port.size() || port.empty())
    refuse("a port is a number from 0 to 65535");
  return endpoint;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace megatrain::parallel
