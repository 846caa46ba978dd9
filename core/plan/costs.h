#pragma once
/// @file
/// What the visits of units cost, asked of the templates themselves.

#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

/// What launching so many kernels as one graph takes the issuing thread, in launches of one kernel.
Index graph_launches(Index kernels);

class Costs {
 public:
  Costs(const Model& model, const Choices& choices);

  /// Tokens of a micro-batch to the first boundary.
  [[nodiscard]] const Cost& embed() const { return embed_; }
  [[nodiscard]] const Cost& forward(Index block) const { return of(block).forward; }
  /// @param output  whether the block's output is made as well, inside a segment
  [[nodiscard]] const Cost& recompute(Index block, bool output) const {
    return output ? of(block).recompute_with_output : of(block).recompute;
  }
  /// Bytes of what a block keeps of a micro-batch.
  [[nodiscard]] Index kept_bytes(Index block) const { return of(block).kept_bytes; }
  [[nodiscard]] const Cost& backward(Index block) const { return of(block).backward; }
  /// Loss and gradients of a micro-batch.
  [[nodiscard]] const Cost& head() const { return head_; }
  /// Its loss alone.
  [[nodiscard]] const Cost& evaluate() const { return evaluate_; }
  /// Logits of one token of each of its sequences.
  [[nodiscard]] const Cost& logits() const { return logits_; }

 private:
  struct BlockCosts {
    Cost forward, recompute, recompute_with_output, backward;
    Index kept_bytes = 0;
  };
  [[nodiscard]] const BlockCosts& of(Index block) const {
    return blocks_[static_cast<std::size_t>(block)];
  }

  std::vector<BlockCosts> blocks_;
  Cost embed_, head_, evaluate_, logits_;
};

}  // namespace megatrain
