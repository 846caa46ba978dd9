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

/// One update, as its pieces see it.
struct Update {
  std::span<const ParamDesc> params;
  ElementRange slice;  ///< of the unit's slab
  AdamWSlice states;   ///< of the slice
  AdamWCoefficients with_decay;
  AdamWCoefficients without_decay;

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
    adamw_update(states.part(range.first - slice.first + first, count),
                 range.decays ? with_decay : without_decay);
  }
};

}  // namespace

void update_unit(HostStore& store, Index unit, const AdamWOptions& options, double lr, double clip,
                 std::int64_t step, DType wire, ThreadPool& pool) {
  require(size_of(wire) <= store.gradient_bytes(), "a gradient wider than its slab");
  const Unit& desc = store.model().unit(unit);
  Update update;
  update.params = desc.params;
  const Slicing& slicing = store.slicing();
  update.slice.first = slicing.begin(desc.slab_elements);
  update.slice.last = update.slice.first + slicing.slice(desc.slab_elements);
  update.states.count = update.slice.count();
  update.states.weights = store.weights(unit);
  update.states.remainder = store.remainder(unit);
  update.states.exp_avg = store.exp_avg(unit);
  update.states.exp_avg_sq = store.exp_avg_sq(unit);
  update.states.gradient = store.gradient(unit);
  update.states.gradient_type = wire;
  update.with_decay = adamw_coefficients(options, lr, clip, step, true);
  update.without_decay = adamw_coefficients(options, lr, clip, step, false);
  // Captures one reference only: std::function keeps that without allocating.
  pool.for_each(update.pieces(), [&update](Index piece) { update.run(piece); });
}

}  // namespace megatrain
