#pragma once
/// @file
/// How fast the host updates states that lie in memory and not in caches.

#include "core/base/thread_pool.h"
#include "launcher/session/machine.h"
#include "launcher/session/measure/copies.h"

namespace megatrain::launcher {

/// How a run keeps what an update writes.
struct StateFormats {
  MasterFormat master = MasterFormat::fp32;
  DType moments = DType::f32;
  bool operator==(const StateFormats&) const = default;
};

/// Rates of host memory that holds more than the caches do, as in a step, with states as the run
/// keeps them.
struct HostUpdate {
  double elements = 0;    ///< AdamW's, a second
  double bandwidth = 0;   ///< bytes a second that AdamW reads and writes
  double read_write = 0;  ///< the same bytes of the same arrays a second, where nothing is computed
  Index bytes = 0;        ///< of the states measured with
  double elements_beside = 0;  ///< AdamW's, a second, while copies go both ways
  Copies::Beside copies;       ///< those

  [[nodiscard]] double of_bandwidth() const { return bandwidth / read_write; }
};

/// Bytes of states to measure with: four times the caches, and enough for every thread, but at
/// most an eighth of the memory that is there.
Index measured_bytes(Index caches, int threads, Index available);

/// AdamW's elements a second with states kept this way, measured as below.
double measure_update(const Machine& machine, const StateFormats& formats, ThreadPool& pool,
                      double least_seconds);

/// Both go round the same states in turns, a quarter of them at a time, and so come back to what no
/// cache holds any more.
HostUpdate measure_host_update(const Machine& machine, ThreadPool& pool, Copies& copies,
                               double least_seconds);

}  // namespace megatrain::launcher
