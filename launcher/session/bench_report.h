#pragma once
/// @file
/// What `bench` found, for a person and for machines. docs/benchmarks/bench.md explains it.

#include <optional>
#include <string>

#include "core/plan/breakdown.h"
#include "core/plan/simulator.h"
#include "launcher/session/bench_run.h"
#include "launcher/session/host_threads.h"
#include "launcher/session/measure/ceilings.h"

namespace megatrain::launcher {

/// Where the time of one step went, by the simulator or as it was traced.
struct StepShares {
  StepBreakdown breakdown;
  std::array<double, kStreams> busy{};  ///< seconds each stream works
  /// Seconds by kind of instruction, of those that there are, in the order of a step.
  std::vector<std::pair<std::string, double>> operations;
};
StepShares step_shares(const Plan& plan, const Trace& trace, const Rates& rates);

struct BenchReport {
  std::string model;
  Index parameters = 0;
  std::string machine;  ///< the device's name
  DeviceKind device = DeviceKind::cpu;
  DType compute = DType::f32;
  HostThreads threads;
  std::string plan;  ///< in words
  Choices choices;
  Index measured_tokens = 0;  ///< of the micro-batch that ceilings were measured with
  Ceilings ceilings;
  double flops_per_token = 0;  ///< model_flops_per_token()
  double peak = 0;             ///< FLOP/s that MFU is against; 0: not known
  std::string peak_source;
  Simulation prediction;
  StepShares predicted;
  Index warmup_steps = 0;
  std::optional<BenchRun> run;  ///< absent: ceilings only
  StepShares traced;            ///< of the run

  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double model_flops() const;       ///< a second
  [[nodiscard]] double prediction_error() const;  ///< (predicted - measured) / measured
};

/// One line a ceiling, with the shapes of products and attention below.
std::string ceilings_text(const BenchReport& report);
/// The steps, the prediction, and where the time went.
std::string steps_text(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace megatrain::launcher
