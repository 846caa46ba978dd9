#include "parallel/world/rendezvous_store.h"

#include <algorithm>
#include <utility>

#include "core/engine/communicator.h"

namespace megatrain::parallel {

RendezvousStore::RendezvousStore(std::shared_ptr<Rendezvous> rendezvous, std::string prefix,
                                 std::vector<int> ranks)
    : rendezvous_(std::move(rendezvous)), prefix_(std::move(prefix)), ranks_(std::move(ranks)) {}

void RendezvousStore::set(const std::string& key, std::string_view value) {
  const Entry entry{key, std::string(value)};
  set_all({&entry, 1});
}

std::optional<std::string> RendezvousStore::get(const std::string& key,
                                                std::chrono::milliseconds timeout) {
  return get_all({&key, 1}, timeout).front();
}

void RendezvousStore::set_all(std::span<const Entry> entries) {
  std::vector<Entry> own(entries.begin(), entries.end());
  for (Entry& entry : own) entry.key.insert(0, prefix_);
  try {
    rendezvous_->set_all(own);
  } catch (const RankLost& lost) {
    blame(lost);
  }
}

KeyValueStore::Values RendezvousStore::get_all(std::span<const std::string> keys,
                                               std::chrono::milliseconds timeout) {
  std::vector<std::string> own(keys.begin(), keys.end());
  for (std::string& key : own) key.insert(0, prefix_);
  try {
    return rendezvous_->find_all(own, timeout);
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
