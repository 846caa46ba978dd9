#pragma once
/// @file
/// Ranks of a test that meet at a rendezvous.

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/rendezvous/client.h"
#include "parallel/rendezvous/server.h"

namespace megatrain::parallel {

using namespace std::chrono_literals;

/// Long enough for a loaded machine; no test waits for it to pass.
constexpr Milliseconds kPatience = 60s;

/// Words that were logged.
class Words {
 public:
  void add(std::string_view text) {
    const std::lock_guard lock(mutex_);
    text_ += std::string(text) + "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  Logger logger() {
    return Logger([this](LogLevel, std::string_view text) { add(text); });
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// Whether a text has these words in it.
inline ::testing::AssertionResult says(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << words << "' is not in: " << text;
}

/// A server of this machine alone, at a port that the system picks.
inline ServerOptions server_options(int world, Words& words) {
  ServerOptions options;
  options.party.run_id = "test";
  options.party.world = world;
  options.host = "127.0.0.1";
  options.log = words.logger();
  return options;
}

/// The place of a rank at a server that the test has started.
inline ProcessPlace place_of(int rank, int world, std::uint16_t port) {
  ProcessPlace place;
  place.rank = rank;
  place.world = world;
  place.local_rank = rank;
  place.local_size = world;
  place.run_id = "test";
  place.rendezvous = {"127.0.0.1", port};
  place.served = true;
  place.source = PlaceSource::own;
  return place;
}

/// Runs `act` as each rank, in a thread each.
inline void as_ranks(int world, const std::function<void(int rank)>& act) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(act, rank);
  for (std::thread& thread : threads) thread.join();
}

/// What an expected error says; empty: there was none.
template <class Exception = Error>
std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace megatrain::parallel
