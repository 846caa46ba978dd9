#pragma once
/// @file
/// Token (and learned position) embedding. The table may be the whole vocabulary or only the rows
/// that a step needs, with ids renumbered by the host: the op does not know which.

#include <limits>

#include "core/ops/common.h"

namespace megatrain::ops {

/// The ids whose rows a table has, one after another. Where it is divided, all others look like
/// rows of zeros, whose gradient goes nowhere.
struct TableRows {
  Index first = 0;
  Index count = std::numeric_limits<Index>::max();
  [[nodiscard]] constexpr bool have(Index id) const { return id >= first && id - first < count; }
};

/// out[t,:] = table[ids[t],:] (+ positions[t % sequence,:]).
struct EmbeddingForward {
  Index tokens = 0, width = 0, sequence = 0;
  DType type = DType::f32;
  const void* table = nullptr;
  TableRows rows = {};
  const std::int32_t* ids = nullptr;  ///< each below the vocabulary (the loader checks)
  const void* positions = nullptr;    ///< [sequence, width]; nullptr: none
  void* out = nullptr;
};

/// dtable[unique[i],:] += sum of dy rows order[begins[i]] .. order[begins[i+1]-1], in that order.
/// The host sorts the tokens of a micro-batch by id (stable), so no two threads meet.
struct EmbeddingBackward {
  Index uniques = 0, width = 0;
  DType type = DType::f32;
  const void* dy = nullptr;              ///< [tokens, width]
  const std::int32_t* order = nullptr;   ///< [tokens]
  const std::int32_t* begins = nullptr;  ///< [uniques + 1]
  const std::int32_t* unique = nullptr;  ///< [uniques]
  TableRows rows = {};
  float* dtable = nullptr;
};

/// dpositions[s,:] (+)= sum over the batch of dy[b * sequence + s,:], in order of b.
struct PositionBackward {
  Index batch = 0, sequence = 0, width = 0;
  DType type = DType::f32;
  const void* dy = nullptr;
  float* dpositions = nullptr;
  bool accumulate = false;
};

}  // namespace megatrain::ops
