#include "launcher/options/run_checks.h"

#include <fmt/format.h>

namespace megatrain::launcher {

namespace {

void check_learning_rate(const RunOptions& o) {
  if (o.min_lr > o.lr)
    throw UserError(fmt::format("--min-lr {} is above --lr {}, the highest", o.min_lr, o.lr));
  if (o.schedule == "constant" && o.min_lr > 0)
    throw UserError(
        fmt::format("--min-lr {} is never reached: --schedule constant stays at --lr; leave one "
                    "of them out",
                    o.min_lr));
  if (o.lr * o.weight_decay > 1)
    throw UserError(
        fmt::format("--lr {} x --weight-decay {} exceeds 1: every step would flip the weights' "
                    "signs; lower one of them",
                    o.lr, o.weight_decay));
}

void check_checkpoints(const RunOptions& run) {
  const CheckpointOptions& o = run.checkpoints;
  // --keep-last counts those that signals ask for, too.
  if (o.keep_every > 0 && o.save_every == 0)
    throw UserError(
        fmt::format("--keep-every {} keeps nothing without --save-every", o.keep_every));
  if (o.accept_change.empty()) return;
  // A named checkpoint is gone on from all the same.
  const bool replaces = run.overwrite && o.resume == "auto";
  if (replaces || o.resume == "none")
    throw UserError(fmt::format(
        "--accept-change {}: {} takes up no earlier run, of which anything could differ",
        o.accept_change.front(), replaces ? "--overwrite" : "--resume none"));
}

}  // namespace

std::vector<std::string> check_together(const RunOptions& options) {
  check_learning_rate(options);
  check_checkpoints(options);
  // No refusal: a few steps of a long run's configuration are how it is tried out.
  if (options.warmup >= options.steps)
    return {fmt::format("--warmup {} is not shorter than --steps {}: the learning rate only rises",
                        options.warmup, options.steps)};
  return {};
}

}  // namespace megatrain::launcher
