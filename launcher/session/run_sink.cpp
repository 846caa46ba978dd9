#include "launcher/session/run_sink.h"

namespace megatrain::launcher {

template <class Write>
void RunSink::write(const Write& write_line) {
  if (failure_ || file_ == nullptr) return;
  try {
    write_line(*file_);
  } catch (const Error&) {
    failure_ = std::current_exception();
  }
}

void RunSink::step(const StepMetrics& metrics) {
  after_step_();
  StepMetrics measured = metrics;
  measured.device_bytes += device_.reserve_bytes();
  console_.step(measured);
  write([&](MetricsFile& file) { file.step(measured); });
}

void RunSink::evaluation(const EvaluationMetrics& metrics) {
  console_.evaluation(metrics);
  write([&](MetricsFile& file) { file.evaluation(metrics); });
}

}  // namespace megatrain::launcher
