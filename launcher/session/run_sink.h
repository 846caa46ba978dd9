#pragma once
/// @file
/// Where the metrics of a run go.

#include <exception>

#include "core/device/device.h"
#include "launcher/console.h"
#include "launcher/metrics_file.h"

namespace megatrain::launcher {

/// Feeds the console and the file. A file that cannot be written any more ends the run at the next
/// step boundary, where the model can be saved.
class RunSink final : public MetricsSink {
 public:
  /// @param file  nullptr: another rank writes it
  RunSink(StepConsole& console, MetricsFile* file, const Device& device)
      : console_(console), file_(file), device_(device) {}

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
  std::exception_ptr failure_;
};

}  // namespace megatrain::launcher
