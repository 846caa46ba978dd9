#pragma once
/// @file
/// Sampling text from a model.

#include <functional>
#include <vector>

#include "core/engine/engine.h"

namespace megatrain {

struct SamplingOptions {
  Index most_tokens = 128;
  double temperature = 0.8;  ///< 0: the likeliest token
  Index top_k = 0;           ///< 0: all
  double top_p = 1.0;        ///< nucleus; 1: all
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop;  ///< tokens that end the text
};

/// Picks a token: a pure function of the logits and (seed, position).
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          Index position);

/// Continues `prompt` (at least one token). The engine's generation plan holds one sequence; what
/// no longer fits its length drops out on the left.
/// @param each  called with every new token as it comes
/// @returns the new tokens
std::vector<std::int32_t> generate(Engine& engine, const Model& model,
                                   std::span<const std::int32_t> prompt,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& each = {});

}  // namespace megatrain
