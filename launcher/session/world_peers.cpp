#include "launcher/session/world_peers.h"

#include <algorithm>

namespace megatrain::launcher {

namespace {

/// What the rendezvous takes of a rank at once.
constexpr std::size_t kPiece = 4096;

}  // namespace

std::vector<std::string> WorldPeers::exchange(const std::string& name, std::string_view bytes) {
  std::vector<std::string> all(static_cast<std::size_t>(size()));
  // Every rank takes as many turns as the one that has most to give.
  std::size_t longest = 0;
  for (const std::string& text :
       world_.exchange(name + " size", std::to_string(bytes.size()), kAsLongAsTheyLive))
    longest = std::max<std::size_t>(longest, std::stoull(text));
  for (std::size_t first = 0; first < longest; first += kPiece) {
    const std::string_view piece = bytes.substr(std::min(first, bytes.size()), kPiece);
    const auto pieces = world_.exchange(name, piece, kAsLongAsTheyLive);
    for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] += pieces[rank];
  }
  return all;
}

}  // namespace megatrain::launcher
