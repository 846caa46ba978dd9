#pragma once
/// @file
/// A decoder model in fp64 with reverse-mode gradients, written for being read. It shares nothing
/// with core/model but the configuration and the rotary tables (which have a test of their own):
/// tensors are found by their Hugging Face names, and every product is a plain loop.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/config.h"

namespace megatrain::reference {

/// Values of tensors, by name, row-major as files store them.
using Tensors = std::map<std::string, std::vector<double>>;

struct Batch {
  Index batch = 0, sequence = 0;
  std::vector<std::int32_t> ids;      ///< [batch * sequence]
  std::vector<std::int32_t> targets;  ///< the same; negative: not counted
};

struct Result {
  std::vector<double> logits;  ///< [tokens, vocabulary]
  std::vector<double> losses;  ///< [tokens]
  Tensors gradients;           ///< of scale * (sum of losses), for every tensor of `weights`
};

/// Forward and backward of one batch.
Result run(const ModelConfig& config, const Tensors& weights, const Batch& batch, double scale);

}  // namespace megatrain::reference
