#pragma once
/// @file
/// Where ranks that are not yet connected find each other.

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

  struct Entry {
    std::string key, value;
  };
  using Values = std::vector<std::optional<std::string>>;
  /// Both do the same for many keys at once: where each request takes a while, in one. What ranks
  /// ask for when each meets all others then takes as many requests as there are ranks, not pairs.
  virtual void set_all(std::span<const Entry> entries) {
    for (const Entry& entry : entries) set(entry.key, entry.value);
  }
  /// @returns by key; those that nobody has set within `timeout` are not there
  [[nodiscard]] virtual Values get_all(std::span<const std::string> keys,
                                       std::chrono::milliseconds timeout) {
    using std::chrono::milliseconds;
    const auto end = std::chrono::steady_clock::now() + timeout;
    Values values;
    for (const std::string& key : keys) {
      const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
      values.push_back(get(key, std::max(milliseconds(0), left)));
    }
    return values;
  }
};

}  // namespace megatrain
