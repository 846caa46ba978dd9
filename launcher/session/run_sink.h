#pragma once
/// @file
/// Where the metrics of a run go.

#include <exception>
#include <functional>

#include "core/device/device.h"
#include "launcher/console.h"
#include "launcher/metrics_file.h"

namespace megatrain::launcher {

/// Feeds the console and the file. A file that cannot be written any more ends the run at the next
/// step boundary, where the model can be saved.
class RunSink final : public MetricsSink {
 public:
  /// @param file        nullptr: another rank writes it
  /// @param after_step  called first thing after each step
  RunSink(StepConsole& console, MetricsFile* file, const Device& device,
          std::function<void()> after_step)
      : console_(console), file_(file), device_(device), after_step_(std::move(after_step)) {}

  void step(const StepMetrics& metrics) override;
  void evaluation(const EvaluationMetrics& metrics) override;
  /// What the file could not be written for, if so.
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

 private:
  template <class Write>
  void write(const Write& write_line);

  StepConsole& console_;
  MetricsFile* file_;
  const Device& device_;
  std::function<void()> after_step_;
  std::exception_ptr failure_;
};

}  // namespace megatrain::launcher
