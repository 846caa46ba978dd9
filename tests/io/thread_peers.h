#pragma once
/// @file
/// Ranks that are threads, and exchange through memory.

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
  /// @param patience  of an exchange; then nobody meets any more
  explicit PeerHub(int ranks, std::chrono::milliseconds patience = std::chrono::seconds(60))
      : patience_(patience) {
    for (int rank = 0; rank < ranks; ++rank)
      peers_.push_back(std::make_unique<Rank>(*this, rank, ranks));
  }
  [[nodiscard]] Peers& of(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

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
    const auto missing = [&]() -> std::optional<std::size_t> {
      for (std::size_t r = 0; r < meeting.size(); ++r)
        if (!meeting[r]) return r;
      return std::nullopt;
    };
    const bool met = changed_.wait_for(lock, patience_, [&] { return lost_ || !missing(); });
    if (!met && !lost_) {
      lost_ = "rank " + std::to_string(*missing()) + " does not come to '" + name + "'";
      changed_.notify_all();
    }
    if (missing()) throw Error(*lost_);
    std::vector<std::string> all;
    for (const auto& said : meeting) all.push_back(*said);
    return all;
  }

  std::chrono::milliseconds patience_;
  std::vector<std::unique_ptr<Rank>> peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, int>, std::vector<std::optional<std::string>>> meetings_;
  std::map<std::pair<std::string, int>, int> uses_;
  std::optional<std::string> lost_;
};

}  // namespace megatrain::io
