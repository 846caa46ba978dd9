#include "parallel/world/rendezvous_store.h"

#include <algorithm>
#include <utility>

#include "core/engine/communicator.h"

namespace megatrain::parallel {

RendezvousStore::RendezvousStore(std::shared_ptr<Rendezvous> rendezvous, std::string prefix,
                                 std::vector<int> ranks)
    : rendezvous_(std::move(rendezvous)), prefix_(std::move(prefix)), ranks_(std::move(ranks)) {}

void RendezvousStore::set(const std::string& key, std::string_view value) {
  try {
    rendezvous_->set(prefix_ + key, value);
  } catch (const RankLost& lost) {
    blame(lost);
  }
}

std::optional<std::string> RendezvousStore::get(const std::string& key,
                                                std::chrono::milliseconds timeout) {
  try {
    return rendezvous_->find(prefix_ + key, timeout);
  } catch (const RankLost& lost) {
    blame(lost);
  }
}

void RendezvousStore::blame(const RankLost& lost) const {
  const auto found = std::ranges::find(ranks_, lost.rank());
  std::vector<int> blamed;
  if (found != ranks_.end()) blamed.push_back(static_cast<int>(found - ranks_.begin()));
  throw PeerError(lost.what(), blamed);
}

}  // namespace megatrain::parallel
