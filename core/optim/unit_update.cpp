#include "core/optim/unit_update.h"

#include <algorithm>

namespace megatrain {

namespace {

/// Neighbouring parameters of one group, with their padding.
struct Range {
  Index first = 0;
  Index count = 0;
  bool decays = false;

  [[nodiscard]] Index pieces() const { return ceil_div(count, kUpdatePiece); }
};

/// Takes the next range off the front of `params`, which is not empty, and cuts it down to what
/// lies inside `slice`.
Range take_range(std::span<const ParamDesc>& params, const ElementRange& slice) {
  Index end = params.front().offset;
  Range range{end, 0, params.front().decay};
  while (!params.empty() && params.front().decay == range.decays && params.front().offset == end) {
    end += params.front().padded_elements();
    params = params.subspan(1);
  }
  range.first = std::clamp(range.first, slice.first, slice.last);
  range.count = std::clamp(end, slice.first, slice.last) - range.first;
  return range;
}

/// The coefficients of both groups.
struct Coefficients {
  Coefficients(const PendingUpdate& u, Index unit)
      : with_decay(adamw_coefficients(u.options, u.lr, u.clip, u.step, true)),
        without_decay(adamw_coefficients(u.options, u.lr, u.clip, u.step, false)) {
    with_decay.rounding_key = without_decay.rounding_key = rounding_key(u.step, unit);
  }
  AdamWCoefficients with_decay, without_decay;

  [[nodiscard]] const AdamWCoefficients& of(const Range& range) const {
    return range.decays ? with_decay : without_decay;
  }
};

/// One update, as its pieces see it.
struct Update {
  std::span<const ParamDesc> params;
  ElementRange slice;  ///< of the unit's slab
  AdamWSlice states;   ///< of the slice
  Coefficients coefficients;

  [[nodiscard]] Index pieces() const {
    Index pieces = 0;
    for (auto rest = params; !rest.empty();) pieces += take_range(rest, slice).pieces();
    return pieces;
  }

  void run(Index piece) const {
    auto rest = params;
    Range range = take_range(rest, slice);
    for (; piece >= range.pieces(); range = take_range(rest, slice)) piece -= range.pieces();
    const Index first = piece * kUpdatePiece;
    const Index count = std::min(kUpdatePiece, range.count - first);
    adamw_update(states.part(range.first - slice.first + first, count), coefficients.of(range));
  }
};

}  // namespace

AdamWSlice states_of(const HostStore& store, Index unit) {
  AdamWSlice states;
  const Index slab = store.model().unit(unit).slab_elements;
  states.count = store.slicing().slice(slab);
  states.position = store.slicing().begin(slab);
  states.weights = store.weights(unit);
  states.remainder = store.remainder(unit);
  states.exp_avg = store.exp_avg(unit);
  states.exp_avg_sq = store.exp_avg_sq(unit);
  states.moment_type = store.moment_type();
  states.master = store.master_format();
  return states;
}

void update_unit(HostStore& store, Index unit, const PendingUpdate& pending, DType wire,
                 ThreadPool& pool) {
  require(size_of(wire) <= store.gradient_bytes(), "a gradient wider than its slab");
  const Unit& desc = store.model().unit(unit);
  Update update{.params = desc.params,
                .slice = store.slicing().elements(desc.slab_elements),
                .states = states_of(store, unit),
                .coefficients = Coefficients(pending, unit)};
  update.states.gradient = store.gradient(unit);
  update.states.gradient_type = wire;
  // Captures one reference only: std::function keeps that without allocating.
  pool.for_each(update.pieces(), [&update](Index piece) { update.run(piece); });
}

void update_unit(const ops::Ops& ops, Stream& stream, const Model& model, Index unit,
                 const ElementRange& held, const AdamWSlice& states, const PendingUpdate& update) {
  const Coefficients coefficients(update, unit);
  for (auto rest = std::span<const ParamDesc>(model.unit(unit).params); !rest.empty();) {
    const Range range = take_range(rest, held);
    if (range.count > 0)
      ops.run(stream, ops::AdamW{.slice = states.part(range.first - held.first, range.count),
                                 .coefficients = coefficients.of(range)});
  }
}

}  // namespace megatrain
