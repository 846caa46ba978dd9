#pragma once
/// @file
/// The other processes that write the same folder, as far as files need to know them.

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/error.h"

namespace megatrain::io {

/// The ranks that save, export and load together. Where it comes from is the program's business;
/// nothing of it shows in what is written.
class Peers {
 public:
  virtual ~Peers() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Every rank gives bytes, up to some megabytes and each as many as it likes, under one name and
  /// gets those of all, by rank. Waits for the last one: one rank may have minutes of writing
  /// before it where another has none. A name may be used again; the n-th use of one rank meets the
  /// n-th of the others. Threads may call it at the same time under different names.
  /// @throws naming the rank that is lost or does not come
  virtual std::vector<std::string> exchange(const std::string& name, std::string_view bytes) = 0;

  /// One process by itself.
  static Peers& alone();
};

/// Runs `act` on every rank and lets all know how it went: a step that all have made, or none.
/// Every rank calls it under the same name.
/// @returns what `act` returned on each rank
/// @throws on all ranks what it threw on the first that failed, as a DamagedCheckpoint, a UserError
///         or an Error that names the rank; one process alone: what it threw
std::vector<std::string> agree(Peers& peers, const std::string& name,
                               const std::function<std::string()>& act);

/// Values on their way to other ranks, which are the same program.
template <typename T>
std::string to_bytes(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <typename T>
std::vector<T> from_bytes(std::string_view bytes) {
  require(bytes.size() % sizeof(T) == 0, "ranks exchange whole values");
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace megatrain::io
