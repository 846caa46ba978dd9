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
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void line(std::string_view text);
  void warning(std::string_view text);
  /// The bar, below the lines; nothing when stdout is no terminal. Call it from one thread at a
  /// time, as io::Progress is called.
  void progress(std::string_view what, double fraction);
  /// A progress callback that shows `what` and bytes.
  io::Progress bytes_progress(std::string what);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Shows the steps of a training run.
class StepConsole final : public MetricsSink {
 public:
  /// @param peak_flops  what MFU is measured against; 0: not shown
  StepConsole(Console& console, Index steps, double peak_flops);
  void step(const StepMetrics& metrics) override;
  void evaluation(const EvaluationMetrics& metrics) override;

 private:
  Console& console_;
  Index steps_;
  double peak_flops_;
  double seconds_per_step_ = 0;  ///< a running mean
};

/// "350 ms", "1m 05s", "2h 03m".
std::string format_seconds(double seconds);
/// "1.23 TFLOP/s".
std::string format_flops(double flops);

}  // namespace megatrain::launcher
