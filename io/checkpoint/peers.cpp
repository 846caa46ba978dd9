#include "io/checkpoint/peers.h"

#include <fmt/format.h>

#include "io/checkpoint/checkpoint.h"

namespace megatrain::io {

namespace {

class Alone final : public Peers {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  std::vector<std::string> exchange(const std::string& /*name*/, std::string_view bytes) override {
    return {std::string(bytes)};
  }
};

/// The first byte of what a rank says: how it went. The rest is what it has to say about it.
enum Outcome : char { done = 'd', damaged = 'c', refused = 'u', failed = 'e' };

std::string outcome_of(const std::function<std::string()>& act) {
  const auto with = [](Outcome outcome, std::string_view text) {
    return fmt::format("{}{}", static_cast<char>(outcome), text);
  };
  try {
    return with(done, act());
  } catch (const DamagedCheckpoint& error) {
    return with(damaged, error.what());
  } catch (const UserError& error) {
    return with(refused, error.what());
  } catch (const std::exception& error) {
    return with(failed, error.what());
  }
}

}  // namespace

Peers& Peers::alone() {
  static Alone alone;
  return alone;
}

std::vector<std::string> agree(Peers& peers, const std::string& name,
                               const std::function<std::string()>& act) {
  if (peers.size() == 1) return {act()};
  std::vector<std::string> all = peers.exchange(name, outcome_of(act));
  require(std::ssize(all) == peers.size(), "an exchange has an answer of every rank");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    require(!all[rank].empty(), "a rank says how it went");
    const char outcome = all[rank].front();
    all[rank].erase(0, 1);
    if (outcome == done) continue;
    const std::string message = fmt::format("rank {}: {}", rank, all[rank]);
    if (outcome == damaged) throw DamagedCheckpoint(message);
    if (outcome == refused) throw UserError(message);
    throw Error(message);
  }
  return all;
}

}  // namespace megatrain::io
