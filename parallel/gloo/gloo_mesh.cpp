#include "parallel/gloo/gloo_mesh.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain {

namespace {

using std::chrono::milliseconds;

/// Gloo waits for a connection for this many times a pair's timeout.
constexpr int kGlooConnectFactor = 5;
/// A peer that has said its address answers soon, and nothing else ends the wait for it. A listener
/// of Gloo's takes the first connection that comes, also a stranger's, who meant whoever had the
/// port before: the one it waits for is then lost, and all try again, with new listeners.
constexpr std::array<milliseconds, 3> kConnectLimits{milliseconds(4'000), milliseconds(8'000),
                                                     milliseconds(16'000)};

constexpr std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

void GlooMesh::connect(const std::shared_ptr<::gloo::transport::Device>& device,
                       KeyValueStore& store, const std::string& name, milliseconds timeout) {
  device_ = device;
  std::string failure;
  for (std::size_t attempt = 0; attempt < kConnectLimits.size(); ++attempt) {
    const std::string meeting = fmt::format("{}/{}", name, attempt);
    failure = try_connect(store, meeting, timeout, std::min(timeout, kConnectLimits[attempt]));
    // Nobody goes on, and perhaps gives up, while others still connect. The store may know that
    // they never will, so they meet there.
    const auto outcome = [&](int of) { return fmt::format("gloo/{}/connected/{}", meeting, of); };
    const KeyValueStore::Entry own{outcome(rank), failure};
    std::vector<std::string> failures = meet(store, name, {&own, 1}, outcome, timeout);
    failures[at(rank)] = failure;
    const auto first =
        std::ranges::find_if(failures, [](const auto& text) { return !text.empty(); });
    if (first == failures.end()) {
      setTimeout(timeout);
      transportContext_->setTimeout(timeout);
      return;
    }
    failure = *first;
    transportContext_.reset();
  }
  throw PeerError(fmt::format("'{}': {}", name, failure), {});
}

std::string GlooMesh::try_connect(KeyValueStore& store, const std::string& meeting,
                                  milliseconds timeout, milliseconds connect_limit) {
  auto context = device_->createContext(rank, size);
  context->setTimeout(std::max(milliseconds(1), connect_limit / kGlooConnectFactor));
  transportContext_ = context;

  // Each rank listens at one address for every other.
  const auto key = [&](int of, int seen_by) {
    return fmt::format("gloo/{}/addresses/{}/{}", meeting, of, seen_by);
  };
  std::vector<KeyValueStore::Entry> own;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const std::vector<char> address = context->createPair(other)->address().bytes();
    context->getPair(other)->setLocalRank(0);
    own.push_back({key(rank, other), {address.begin(), address.end()}});
  }
  const std::vector<std::string> addresses =
      meet(store, meeting, own, [&](int of) { return key(of, rank); }, timeout);
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const std::string& address = addresses[at(other)];
    try {
      if (address.size() != own.front().value.size()) throw Error("it has another version of Gloo");
      context->getPair(other)->connect({address.begin(), address.end()});
    } catch (const std::exception& error) {
      return fmt::format("rank {} of {} cannot connect to rank {}: {}", rank, size, other,
                         error.what());
    }
  }
  return {};
}

std::vector<std::string> GlooMesh::meet(KeyValueStore& store, const std::string& name,
                                        std::span<const KeyValueStore::Entry> own,
                                        const std::function<std::string(int of)>& key,
                                        milliseconds timeout) const {
  store.set_all(own);
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other)
    if (other != rank) keys.push_back(key(other));
  KeyValueStore::Values found = store.get_all(keys, timeout);
  std::vector<std::string> values(at(size));
  std::vector<int> missing;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    std::optional<std::string>& value = found[at(other < rank ? other : other - 1)];
    if (value)
      values[at(other)] = *std::move(value);
    else
      missing.push_back(other);
  }
  if (!missing.empty())
    throw PeerError(fmt::format("rank {} of {} waited {} to connect '{}': {} {} did not come", rank,
                                size, timeout, name, missing.size() == 1 ? "rank" : "ranks",
                                fmt::join(missing, ", ")),
                    missing);
  return values;
}

}  // namespace megatrain
