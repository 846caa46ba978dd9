#pragma once
/// @file
/// Ranks that are threads, and exchange through memory.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/peers.h"

namespace megatrain::io {

class PeerHub {
 public:
  explicit PeerHub(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      peers_.push_back(std::make_unique<Rank>(*this, rank, ranks));
  }
  [[nodiscard]] Peers& of(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  /// From here on nobody waits for that rank.
  void lose(int rank) {
    const std::lock_guard lock(mutex_);
    lost_ = "rank " + std::to_string(rank) + " is lost";
    changed_.notify_all();
  }

  /// Called by every rank with the name of an exchange that it comes to.
  std::function<void(int rank, const std::string& name)> arrives = {};

 private:
  class Rank : public Peers {
   public:
    Rank(PeerHub& hub, int rank, int size) : hub_(hub), rank_(rank), size_(size) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    std::vector<std::string> exchange(const std::string& name, std::string_view bytes) override {
      if (hub_.arrives) hub_.arrives(rank_, name);
      return hub_.exchange(rank_, name, bytes);
    }

   private:
    PeerHub& hub_;
    int rank_, size_;
  };

  std::vector<std::string> exchange(int rank, const std::string& name, std::string_view bytes) {
    std::unique_lock lock(mutex_);
    auto& meeting = meetings_[{name, uses_[{name, rank}]++}];
    meeting.resize(peers_.size());
    meeting[static_cast<std::size_t>(rank)] = std::string(bytes);
    changed_.notify_all();
    const auto met = [&] {
      return std::ranges::all_of(meeting, [](const auto& said) { return said.has_value(); });
    };
    const bool in_time =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return lost_ || met(); });
    if (!met()) throw Error(in_time ? *lost_ : "nobody comes to '" + name + "'");
    std::vector<std::string> all;
    for (const auto& said : meeting) all.push_back(*said);
    return all;
  }

  std::vector<std::unique_ptr<Rank>> peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, int>, std::vector<std::optional<std::string>>> meetings_;
  std::map<std::pair<std::string, int>, int> uses_;
  std::optional<std::string> lost_;
};

}  // namespace megatrain::io
