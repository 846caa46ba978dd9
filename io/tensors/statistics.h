#pragma once
/// @file
/// What the values of tensors look like.

#include <optional>
#include <span>
#include <vector>

#include "io/pieces.h"
#include "io/tensors/tensor_set.h"

namespace megatrain::io {

struct TensorStatistics {
  Index elements = 0;
  Index nan = 0, infinite = 0, zero = 0;  ///< how many; zeros of both signs
  // Of the finite values, in fp64; 0 when there are none.
  double min = 0, max = 0, mean = 0;
  double std = 0;  ///< of these values, not an estimate for others (divided by n, not n - 1)
  [[nodiscard]] Index finite() const { return elements - nan - infinite; }
};

/// Reads every tensor once, in pieces, by all threads; the result does not depend on their number.
/// nullopt for a tensor that is refused or whose type is no real number. @throws as reading does
std::vector<std::optional<TensorStatistics>> tensor_statistics(std::span<const NamedTensor> tensors,
                                                               ThreadPool& pool,
                                                               const Progress& progress = {});

}  // namespace megatrain::io
