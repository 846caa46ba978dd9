#pragma once
/// @file
/// The rendezvous as the store in which the ranks of one communicator find each other.

#include <memory>
#include <string>
#include <vector>

#include "parallel/key_value_store.h"
#include "parallel/rendezvous/client.h"

namespace megatrain::parallel {

/// After trouble its calls throw a PeerError with the trouble's reason. It blames the rank of the
/// communicator whose fault it is; nobody when that one is not of the communicator.
class RendezvousStore final : public KeyValueStore {
 public:
  /// @param prefix  of all keys, the communicator's alone
  /// @param ranks   of the world, by the communicator's
  RendezvousStore(std::shared_ptr<Rendezvous> rendezvous, std::string prefix,
                  std::vector<int> ranks);

  void set(const std::string& key, std::string_view value) override;
  [[nodiscard]] std::optional<std::string> get(const std::string& key,
                                               std::chrono::milliseconds timeout) override;
  void set_all(std::span<const Entry> entries) override;
  [[nodiscard]] Values get_all(std::span<const std::string> keys,
                               std::chrono::milliseconds timeout) override;

 private:
  [[noreturn]] void blame(const RankLost& lost) const;

  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string prefix_;
  const std::vector<int> ranks_;
};

}  // namespace megatrain::parallel
