#pragma once
/// @file
/// Learning rate as a pure function of the step.

#include <cstdint>
#include <string_view>

namespace megatrain {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

/// Warm-up rises linearly from lr / warmup at step 0 to lr at step warmup - 1, the peak (step 0
/// without warm-up). Then: constant lr; linear or cosine down to min_lr at the last step; wsd
/// (warm-up, stable, decay): lr until the last decay_fraction of the steps, then linear down to
/// min_lr at the last step. The peak comes first: a run of one step uses lr, and one whose warm-up
/// is not shorter than the run only rises.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 3e-4;
  double min_lr = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 1;
  double decay_fraction = 0.2;  ///< wsd only

  /// @throws UserError naming the first value that cannot work
  void validate() const;

  /// Learning rate of step `step`, counted from 0; past the end, min_lr (constant: lr).
  [[nodiscard]] double at(std::int64_t step) const;
};

ScheduleKind parse_schedule(std::string_view name);  ///< @throws UserError
std::string_view name(ScheduleKind kind);

}  // namespace megatrain
