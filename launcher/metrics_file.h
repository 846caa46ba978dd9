#pragma once
/// @file
/// metrics.jsonl: a line of JSON for every step and every evaluation.

#include <filesystem>
#include <string_view>

#include "core/train/metrics.h"
#include "io/file.h"

namespace megatrain::launcher {

/// Each line is handed to the system whole as it comes: a reader sees no half line, and neither
/// does a full disk leave one.
class MetricsFile final : public MetricsSink {
 public:
  /// @param keep  an earlier run's lines up to this step stay, those after it go; 0: none stays
  /// @throws UserError when it cannot be created
  explicit MetricsFile(std::filesystem::path path, Index keep = 0);

  /// {"step", "tokens", "loss", "grad_norm", "lr", "tokens_per_s", "host_bytes", "device_bytes"},
  /// and "skipped": true where the gradient was not finite. Values that are not finite are null.
  void step(const StepMetrics& metrics) override;
  /// {"step", "val_loss", "val_tokens"}
  void evaluation(const EvaluationMetrics& metrics) override;

  /// Whoever removes the file while it is written loses its lines, which no write notices.
  /// @throws UserError when it is not there any more
  void check_there() const;

 private:
  void keep_until(Index step);
  void append(std::string_view line);

  std::filesystem::path path_;
  io::FileDescriptor descriptor_;
  Index end_ = 0;  ///< of the last whole line
};

}  // namespace megatrain::launcher
