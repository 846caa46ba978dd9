#pragma once
/// @file
/// Which tiles of a causal, possibly windowed, score matrix have anything to compute.

#include <algorithm>

#include "core/ops/attention.h"
#include "core/ops/cpu/pieces.h"

namespace megatrain::ops::cpu {

/// Queries and keys of one tile.
inline constexpr Index kAttentionTile = 64;

/// The tiles of one head. Tile t of queries and tile t of keys cover the same tokens.
struct AttentionTiles {
  Index sequence, window;  ///< window 0: all keys before a query

  explicit constexpr AttentionTiles(const AttentionShape& shape)
      : sequence(shape.sequence), window(shape.window < shape.sequence ? shape.window : 0) {}

  [[nodiscard]] constexpr Index number() const { return ceil_div(sequence, kAttentionTile); }
  [[nodiscard]] constexpr Range tokens(Index tile) const {
    return {tile * kAttentionTile, std::min(sequence, (tile + 1) * kAttentionTile)};
  }
  /// Tiles of keys that some query of `query_tile` sees.
  [[nodiscard]] constexpr Range key_tiles(Index query_tile) const {
    const Index first = window > 0 ? std::max<Index>(0, tokens(query_tile).begin - window + 1) : 0;
    return {first / kAttentionTile, query_tile + 1};
  }
  /// Tiles of queries that see some key of `key_tile`.
  [[nodiscard]] constexpr Range query_tiles(Index key_tile) const {
    const Index last =
        window > 0 ? std::min(sequence - 1, tokens(key_tile).end - 1 + window - 1) : sequence - 1;
    return {key_tile, last / kAttentionTile + 1};
  }
  /// True when some query of the one does not see some key of the other.
  [[nodiscard]] constexpr bool needs_mask(Index query_tile, Index key_tile) const {
    const Range queries = tokens(query_tile);
    const Range keys = tokens(key_tile);
    return queries.begin < keys.end - 1 || (window > 0 && queries.end - 1 - keys.begin >= window);
  }
};

}  // namespace megatrain::ops::cpu
