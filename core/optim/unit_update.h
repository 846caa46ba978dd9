#pragma once
/// @file
/// The AdamW update of one unit of the host store.

#include "core/optim/adamw.h"
#include "core/store/host_store.h"

namespace megatrain {

/// Updates what the store holds of every parameter of `unit` from its gradient slab, each with the
/// coefficients of its group (ParamDesc::decay). Neighbours of one group are updated as one range,
/// padding included: padding is zero in every slab, and an update of zeros gives zeros. Allocates
/// nothing.
///
/// @param lr    learning rate of this step
/// @param clip  ClipDecision::factor; a step that the decision skips must not come here
/// @param step  1 for the first applied update
/// @param wire  element type of the gradient slab: elements lie close together from its start,
///              also where the store keeps room for a wider type
void update_unit(HostStore& store, Index unit, const AdamWOptions& options, double lr, double clip,
                 std::int64_t step, DType wire, ThreadPool& pool);

}  // namespace megatrain
