#pragma once
/// @file
/// What a training run reports. The launcher implements the sink.

#include <cstdint>

#include "core/base/types.h"

namespace megatrain {

/// One training step.
struct StepMetrics {
  Index step = 0;        ///< 1 for the first
  Index tokens = 0;      ///< valid tokens trained on, all steps
  double loss = 0;       ///< mean over the step's valid tokens
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  bool skipped = false;  ///< the norm was not finite: no state was written
  double seconds = 0;    ///< of this step
  double tokens_per_second = 0;
  double model_flops_per_second = 0;
  Index host_bytes = 0;    ///< resident memory of the process, measured
  Index device_bytes = 0;  ///< of the engine's arena; what lies outside it is the program's to add
};

struct EvaluationMetrics {
  Index step = 0;
  Index tokens = 0;  ///< held-out tokens evaluated
  double loss = 0;   ///< mean over them
};

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void step(const StepMetrics& metrics) = 0;
  virtual void evaluation(const EvaluationMetrics& metrics) = 0;
};

}  // namespace megatrain
