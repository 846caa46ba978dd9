#pragma once
/// @file
/// The AdamW update of one unit, on the host or on the device.

#include <span>

#include "core/ops/ops.h"
#include "core/optim/adamw.h"
#include "core/store/host_store.h"

namespace megatrain {

/// An update that the states have not seen yet.
struct PendingUpdate {
  AdamWOptions options;
  double lr = 0;
  double clip = 1;        ///< ClipDecision::factor; a step that the decision skips is never pending
  std::int64_t step = 0;  ///< 1 for the first applied one
};

/// Where the store has what it holds of a unit's states. Without the gradient.
AdamWSlice states_of(const HostStore& store, Index unit);

/// Updates what the store holds of every parameter of `unit` from its gradient slab, each with the
/// coefficients of its group (ParamDesc::decay). Neighbours of one group are updated as one range,
/// padding included: padding is zero in every slab, and an update of zeros gives zeros. Allocates
/// nothing.
///
/// @param wire  element type of the gradient slab: elements lie close together from its start,
///              also where the store keeps room for a wider type
void update_unit(HostStore& store, Index unit, const PendingUpdate& update, DType wire,
                 ThreadPool& pool);

/// The same of states on the device, enqueued on `stream`: bit for bit what the host makes of them.
///
/// @param held    the elements of the unit's slab that `states` are
/// @param states  gradient included
void update_unit(const ops::Ops& ops, Stream& stream, const Model& model, Index unit,
                 const ElementRange& held, const AdamWSlice& states, const PendingUpdate& update);

}  // namespace megatrain
