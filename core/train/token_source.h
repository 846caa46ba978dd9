#pragma once
/// @file
/// Where training data comes from, as the trainer sees it. io implements it for files.

#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace megatrain {

/// Samples of sequence + 1 tokens by index; a pure function of the index, callable from several
/// threads at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// At least 1.
  [[nodiscard]] virtual Index samples() const = 0;
  [[nodiscard]] virtual Index sequence() const = 0;
  /// Fills `tokens` (sequence() + 1 of them) with sample `index` of [0, samples()). The target of
  /// position i is tokens[i + 1]; a negative one is not counted.
  /// @throws UserError for a token beyond the vocabulary, Error when the data cannot be read
  virtual void sample(Index index, std::span<std::int32_t> tokens) const = 0;
};

}  // namespace megatrain
