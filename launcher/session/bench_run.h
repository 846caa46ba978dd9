#pragma once
/// @file
/// Training steps that are only there to be timed.

#include "core/engine/engine.h"
#include "core/train/token_source.h"
#include "launcher/console.h"
#include "launcher/options/bench_options.h"
#include "launcher/session/machine.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"

namespace megatrain::launcher {

/// Endless tokens, all equally likely.
class SyntheticTokens final : public TokenSource {
 public:
  SyntheticTokens(Index sequence, Index vocabulary)
      : sequence_(sequence), vocabulary_(vocabulary) {}
  [[nodiscard]] Index samples() const override { return Index{1} << 40; }
  [[nodiscard]] Index sequence() const override { return sequence_; }
  void sample(Index index, std::span<std::int32_t> tokens) const override;

 private:
  Index sequence_;
  Index vocabulary_;
};

/// Timed steps, without the warm-up; and one more, traced.
struct BenchRun {
  std::vector<double> seconds;  ///< of each timed step, in order
  Trace trace;
  Index store_bytes = 0;
  ArenaSeconds store_seconds;  ///< what making the host store took
  Index host_bytes = 0;        ///< resident at the end
  Index device_bytes = 0;      ///< of the engine's arena and outside it

  [[nodiscard]] double median() const;
  [[nodiscard]] double least() const;
  [[nodiscard]] double most() const;
};

/// Trains with Engine and Trainer, as `train` does with the same options, on synthetic tokens. The
/// traced step comes last: it is slower by the events that time it.
/// @param plans  moved from
BenchRun run_steps(const BenchOptions& options, const ModelSource& source, const Model& model,
                   Machine& machine, RunPlans& plans, ThreadPool& pool, Console& console);

}  // namespace megatrain::launcher
