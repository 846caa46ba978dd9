#include "parallel/gloo/gloo_mesh.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain {

namespace {

using std::chrono::milliseconds;

/// Gloo waits for a connection for this many times a pair's timeout.
constexpr int kGlooConnectFactor = 5;
/// A peer that has said its address answers soon, and nothing else ends the wait for it.
constexpr milliseconds kConnectLimit{20'000};

}  // namespace

void GlooMesh::connect(const std::shared_ptr<::gloo::transport::Device>& device,
                       KeyValueStore& store, const std::string& name, milliseconds timeout) {
  auto context = device->createContext(rank, size);
  context->setTimeout(
      std::max(milliseconds(1), std::min(timeout, kConnectLimit) / kGlooConnectFactor));

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
  const std::vector<std::string> addresses = meet(store, name, "addresses", own, timeout);
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
      throw PeerError(fmt::format("rank {} of {} cannot connect to rank {} for '{}': {}", rank,
                                  size, other, name, error.what()),
                      {other});
    }
  }
  // Nobody goes on, and perhaps gives up, while others still connect. The store may know that they
  // never will, so they meet there.
  meet(store, name, "connected", "", timeout);
  setTimeout(timeout);
  context->setTimeout(timeout);
  device_ = device;
  transportContext_ = std::move(context);
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
