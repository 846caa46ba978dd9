#pragma once
/// @file
/// The training loop: data, step, metrics; evaluation in between; a state that can be saved.

#include <functional>
#include <optional>

#include "core/engine/engine.h"
#include "core/optim/schedule.h"
#include "core/train/loader.h"
#include "core/train/metrics.h"
#include "core/train/saver.h"

namespace megatrain {

struct TrainOptions {
  Index steps = 0;
  Schedule schedule;
  AdamWOptions adamw;
  double max_norm = 1;              ///< clipping; <= 0: none
  std::uint64_t seed = 0;           ///< of the data order
  DataShare share;                  ///< what of the data is this rank's
  Index evaluate_every = 0;         ///< steps; 0: at the end only
  Index evaluate_sequences = 0;     ///< at most this many held-out sequences; 0: all
  Index most_skips_in_a_row = 100;  ///< then training stops with an error: it is not recovering
};

/// Every rank of a run makes one, with the same data and options but for the share, and makes the
/// same calls in the same order; what it reports and saves is of the whole run, the same on each.
class Trainer {
 public:
  /// @param evaluation  held-out data; nullptr: none
  Trainer(Engine& engine, const Model& model, const TokenSource& data,
          const TokenSource* evaluation, const TrainOptions& options, TrainState state = {});

  /// One step. @throws Error when too many steps in a row were skipped
  StepMetrics step(Trace* trace = nullptr);
  /// Mean held-out loss, after all updates so far; nullopt when stop() says so on the way. Then the
  /// evaluation stays due (TrainState).
  std::optional<EvaluationMetrics> evaluate(const std::function<bool()>& stop = [] {
    return false;
  });
  /// Steps until the options' end, or until stop() says so at a step boundary or in an evaluation;
  /// evaluates when due and at the end; flushes.
  /// @param stop   must give the same answer on all ranks
  /// @param trace  where to trace a step (counted from 1), or nullptr; absent: no step is traced
  /// @param saver  asked after every step whether its state is to be saved; nullptr: never. Every
  ///               state that it asked for has been handed over on return
  void run(MetricsSink& sink, const std::function<bool()>& stop,
           const std::function<Trace*(Index step)>& trace = {}, Saver* saver = nullptr);
  /// Asks whether the state is to be saved, and has the engine hand it over while training goes on
  /// (Engine::snapshot). @param ending  as Saver::begin()
  void save(Saver& saver, bool ending);
  [[nodiscard]] const TrainState& state() const { return state_; }
  [[nodiscard]] const TrainOptions& options() const { return options_; }

 private:
  Engine& engine_;
  const Model& model_;
  const TokenSource* evaluation_;
  TrainOptions options_;
  TrainState state_;
  Loader loader_;
  double flops_per_token_;
};

/// Resident memory of this process in bytes, measured.
Index resident_bytes();

}  // namespace megatrain
