#pragma once
/// @file
/// Where ranks that are not yet connected find each other.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace megatrain {

/// Small values by name, seen by every rank. Safe to use from several threads of a process.
/// A store that learns why the work of all is over throws that as a PeerError from then on, whose
/// word counts before what a communicator finds out itself.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  /// Any bytes. A later value replaces an earlier one. @throws Error when the store is out of reach
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// The value, as soon as somebody has set it; nothing when nobody has within `timeout` (0: only
  /// what is there now). @throws Error when the store is out of reach
  [[nodiscard]] virtual std::optional<std::string> get(const std::string& key,
                                                       std::chrono::milliseconds timeout) = 0;
};

}  // namespace megatrain
