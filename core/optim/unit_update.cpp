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

/// Takes the next range off the front of `params`, which is not empty.
Range take_range(std::span<const ParamDesc>& params) {
  Range range{params.front().offset, 0, params.front().decay};
  while (!params.empty() && params.front().decay == range.decays &&
         params.front().offset == range.first + range.count) {
    range.count += params.front().padded_elements();
    params = params.subspan(1);
  }
  return range;
}

/// One update, as its pieces see it.
struct Update {
  std::span<const ParamDesc> params;
  AdamWSlice slab;
  AdamWCoefficients with_decay;
  AdamWCoefficients without_decay;

  [[nodiscard]] Index pieces() const {
    Index pieces = 0;
    for (auto rest = params; !rest.empty();) pieces += take_range(rest).pieces();
    return pieces;
  }

  void run(Index piece) const {
    auto rest = params;
    Range range = take_range(rest);
    for (; piece >= range.pieces(); range = take_range(rest)) piece -= range.pieces();
    const Index first = piece * kUpdatePiece;
    const Index count = std::min(kUpdatePiece, range.count - first);
    adamw_update(slab.part(range.first + first, count), range.decays ? with_decay : without_decay);
  }
};

}  // namespace

void update_unit(HostStore& store, Index unit, const AdamWOptions& options, double lr, double clip,
                 std::int64_t step, DType wire, ThreadPool& pool) {
  require(size_of(wire) <= store.gradient_bytes(), "a gradient wider than its slab");
  const Unit& desc = store.model().unit(unit);
  Update update;
  update.params = desc.params;
  update.slab.count = desc.slab_elements;
  update.slab.weights = store.weights(unit);
  update.slab.remainder = store.remainder(unit);
  update.slab.exp_avg = store.exp_avg(unit);
  update.slab.exp_avg_sq = store.exp_avg_sq(unit);
  update.slab.gradient = store.gradient(unit);
  update.slab.gradient_type = wire;
  update.with_decay = adamw_coefficients(options, lr, clip, step, true);
  update.without_decay = adamw_coefficients(options, lr, clip, step, false);
  // Captures one reference only: std::function keeps that without allocating.
  pool.for_each(update.pieces(), [&update](Index piece) { update.run(piece); });
}

}  // namespace megatrain
