#pragma once
/// @file
/// metrics.jsonl: a line of JSON for every step and every evaluation.

#include <filesystem>
#include <string_view>

#include "core/train/metrics.h"
#include "io/file.h"

namespace megatrain::launcher {

/// Lines of an earlier run that stay.
struct KeptLines {
  Index until = 0;         ///< those up to this step; 0: none
  bool evaluation = true;  ///< also the evaluation of that very step; false: it is written again
};

/// Each line is handed to the system whole as it comes: a reader sees no half line, and neither
/// does a full disk leave one.
class MetricsFile final : public MetricsSink {
 public:
  /// @param keep  the others go
  /// @throws UserError when it cannot be created
  MetricsFile(std::filesystem::path path, const KeptLines& keep);

  /// {"step", "tokens", "loss", "grad_norm", "lr", "tokens_per_s", "host_bytes", "device_bytes"},
  /// and "skipped": true where the gradient was not finite. Values that are not finite are null.
  void step(const StepMetrics& metrics) override;
  /// {"step", "val_loss", "val_tokens"}
  void evaluation(const EvaluationMetrics& metrics) override;

  /// Whoever removes the file while it is written loses its lines, which no write notices.
  /// @throws UserError when it is not there any more
  void check_there() const;

 private:
  void cut_behind(const KeptLines& keep);
  void append(std::string_view line);

  std::filesystem::path path_;
  io::FileDescriptor descriptor_;
  Index end_ = 0;  ///< of the last whole line
};

}  // namespace megatrain::launcher
