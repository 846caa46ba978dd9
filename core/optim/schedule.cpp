#include "core/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace megatrain {

namespace {

struct NamedKind {
  std::string_view name;
  ScheduleKind kind;
};
constexpr std::array kKinds = {
    NamedKind{"constant", ScheduleKind::constant}, NamedKind{"linear", ScheduleKind::linear},
    NamedKind{"cosine", ScheduleKind::cosine}, NamedKind{"wsd", ScheduleKind::wsd}};

/// `done` / `all` of the way from `from` to `to`, exact at both ends.
double between(double from, double to, std::int64_t done, std::int64_t all) {
  const double way = static_cast<double>(done) / static_cast<double>(all);
  return from * (1 - way) + to * way;
}

}  // namespace

void Schedule::validate() const {
  if (!(lr >= 0 && std::isfinite(lr)))
    throw UserError(fmt::format("the learning rate must be a finite number >= 0, not {}", lr));
  if (!(min_lr >= 0 && min_lr <= lr))
    throw UserError(
        fmt::format("the minimum learning rate must be in [0, {}] (lr), not {}", lr, min_lr));
  if (warmup < 0) throw UserError(fmt::format("warm-up steps must be >= 0, not {}", warmup));
  if (steps < 1) throw UserError(fmt::format("a schedule needs at least 1 step, not {}", steps));
  if (!(decay_fraction >= 0 && decay_fraction <= 1))
    throw UserError(
        fmt::format("the wsd schedule's decay fraction must be in [0, 1], not {}", decay_fraction));
}

double Schedule::at(std::int64_t step) const {
  require(step >= 0, "a schedule counts its steps from 0");
  if (step >= steps) return kind == ScheduleKind::constant ? lr : min_lr;
  if (step < warmup) return between(0, lr, step + 1, warmup);
  const std::int64_t peak = std::max<std::int64_t>(warmup - 1, 0);
  if (step == peak) return lr;
  const std::int64_t last = steps - 1;
  switch (kind) {
    case ScheduleKind::constant:
      return lr;
    case ScheduleKind::linear:
      return between(lr, min_lr, step - peak, last - peak);
    case ScheduleKind::cosine: {
      const double way = static_cast<double>(step - peak) / static_cast<double>(last - peak);
      return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * way));
    }
    case ScheduleKind::wsd: {
      const auto decay_steps = std::llround(decay_fraction * static_cast<double>(steps));
      const std::int64_t hold = std::max<std::int64_t>(steps - decay_steps - 1, peak);
      return step <= hold ? lr : between(lr, min_lr, step - hold, last - hold);
    }
  }
  throw LogicError("internal error: unknown schedule kind");
}

ScheduleKind parse_schedule(std::string_view text) {
  std::string known;
  for (const NamedKind& entry : kKinds) {
    if (entry.name == text) return entry.kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  throw UserError(fmt::format("unknown schedule '{}'; known: {}", text, known));
}

std::string_view name(ScheduleKind kind) {
  for (const NamedKind& entry : kKinds)
    if (entry.kind == kind) return entry.name;
  throw LogicError("internal error: unknown schedule kind");
}

}  // namespace megatrain
