#pragma once
/// @file
/// Tensor parallelism (Shoeybi et al. 2019, section 3): the parts of a model are ranks, which meet
/// in collectives.
///
/// The core's pieces say where parts depend on one another (core/model/part_group.h); this is all
/// that happens there:
///
/// | piece | forward | backward |
/// |---|---|---|
/// | column-parallel linear: qkv, gate and up | nothing | d(x): all-reduce |
/// | row-parallel linear: attention's output, down | y: all-reduce | nothing |
/// | embedding divided by rows | output: all-reduce | nothing |
/// | logits and loss, vocabulary divided | three numbers a token: all-gather | d(x): all-reduce |
/// | qk-norm | nothing | d(weight), once a step: all-reduce |
///
/// Weights that every part has, and biases behind a sum, see the same activations and gradients on
/// each part, bit for bit; so their gradients are the same without a collective.

#include <memory>

#include "core/engine/communicator.h"
#include "core/model/part_group.h"

namespace megatrain {

/// The ranks of `tensor` as parts of a model, in their order.
std::unique_ptr<PartGroup> make_tensor_parts(std::unique_ptr<Communicator> tensor);

}  // namespace megatrain
