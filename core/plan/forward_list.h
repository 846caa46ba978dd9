#pragma once
/// @file
/// Forward only: the loss of held-out tokens, or the logits of the next token.

#include "core/plan/list_writer.h"

namespace megatrain {

class ForwardListWriter {
 public:
  ForwardListWriter(const Model& model, const Choices& choices, const Layout& layout,
                    PlanBuilder& builder);
  void prologue(InstructionList& list);
  void body(InstructionList& list);

 private:
  void wave(Index wave);

  const Model& model_;
  const Choices& choices_;
  const Layout& layout_;
  ListWriter writer_;
};

}  // namespace megatrain
