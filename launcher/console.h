#pragma once
/// @file
/// What a person sees: lines on stdout, warnings on stderr, and a bar of progress where stdout is a
/// terminal.

#include <memory>
#include <string>
#include <string_view>

#include "core/train/metrics.h"
#include "io/pieces.h"

namespace megatrain::launcher {

class Console {
 public:
  /// @param quiet  shows nothing: one of several processes that would all say the same
  /// @param bar    draws the bar where stdout is a terminal
  explicit Console(bool quiet = false, bool bar = true);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void line(std::string_view text);
  void warning(std::string_view text);
  /// Whether stdout is one, and has the bar.
  [[nodiscard]] bool is_terminal() const;
  /// The bar, below the lines; nothing when stdout is no terminal. Call it from one thread at a
  /// time, as io::Progress is called.
  void progress(std::string_view what, double fraction);
  /// A progress callback that shows `what` and bytes.
  io::Progress bytes_progress(std::string what);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Shows the steps of a training run: a line each, or, where they would flood a log, the first, the
/// last, and about one a second.
class StepConsole final : public MetricsSink {
 public:
  /// @param peak_flops  what MFU is measured against; 0: not shown
  /// @param every_step  a line for each, however short it was
  StepConsole(Console& console, Index steps, double peak_flops, bool every_step);
  void step(const StepMetrics& metrics) override;
  void evaluation(const EvaluationMetrics& metrics) override;
  /// Shows the last step, when it has no line yet: for a run that ends early.
  void finish();

 private:
  Console& console_;
  Index steps_;
  double peak_flops_;
  bool every_step_;
  double seconds_per_step_ = 0;  ///< a running mean
  double seconds_without_line_;  ///< of the steps since the last line
  std::string waiting_;          ///< the last step's line, not shown yet
};

/// Hands on all that was printed. A reader that has gone away, as head does, has what it wants.
/// @throws Error when standard output does not take it, now or earlier
void finish_output();

/// "350 ms", "1m 05s", "2h 03m".
std::string format_seconds(double seconds);
/// "12.34 ms", "5.439 s": for what is compared.
std::string precise_seconds(double seconds);
/// "1.23 TFLOP/s".
std::string format_flops(double flops);

}  // namespace megatrain::launcher
