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
    std::vector<std::string> failures = meet(store, meeting, "connected", failure, timeout);
    failures[static_cast<std::size_t>(rank)] = failure;
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

  // Each rank listens at one address for every other; all addresses have the same length.
  std::string own;
  std::size_t length = 0;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const std::vector<char> address = context->createPair(other)->address().bytes();
    context->getPair(other)->setLocalRank(0);
    length = address.size();
    own.append(address.begin(), address.end());
  }
  const std::vector<std::string> addresses = meet(store, meeting, "addresses", own, timeout);
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const std::string& all = addresses[static_cast<std::size_t>(other)];
    // A rank has no address for itself.
    const std::size_t place = static_cast<std::size_t>(rank < other ? rank : rank - 1) * length;
    try {
      if (all.size() != own.size())
        throw Error("it has another number of ranks, or another version of Gloo");
      context->getPair(other)->connect({all.begin() + static_cast<std::ptrdiff_t>(place),
                                        all.begin() + static_cast<std::ptrdiff_t>(place + length)});
    } catch (const std::exception& error) {
      return fmt::format("rank {} of {} cannot connect to rank {}: {}", rank, size, other,
                         error.what());
    }
  }
  return {};
}

std::vector<std::string> GlooMesh::meet(KeyValueStore& store, const std::string& name,
                                        std::string_view what, std::string_view own,
                                        milliseconds timeout) const {
  const auto key = [&](int of) { return fmt::format("gloo/{}/{}/{}", name, what, of); };
  store.set(key(rank), own);
  std::vector<std::string> values(static_cast<std::size_t>(size));
  std::vector<int> missing;
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (auto value = store.get(key(other), std::max(milliseconds(0), left)))
      values[static_cast<std::size_t>(other)] = std::move(*value);
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
