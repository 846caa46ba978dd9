#pragma once
/// @file
/// What a step did, or is predicted to do, with the names of the plan: prediction and reality lie
/// side by side in Perfetto or chrome://tracing.

#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace megatrain {

struct TraceSpan {
  std::string name;
  StreamId stream = StreamId::compute;
  double begin = 0, end = 0;  ///< seconds
};

/// Spans of one or several steps.
struct Trace {
  std::vector<TraceSpan> spans;

  /// traces_to_json() of this one.
  [[nodiscard]] std::string to_json() const;
  /// Time in which at least one span of the stream runs.
  [[nodiscard]] double busy(StreamId stream) const;
  /// Time in which both streams run.
  [[nodiscard]] double overlap(StreamId a, StreamId b) const;
};

/// A trace with a name of its own.
struct NamedTrace {
  std::string name;
  const Trace* trace = nullptr;
};

/// Chrome's trace event format (JSON): each trace is a process, one row a stream, so that they lie
/// one below the other.
std::string traces_to_json(std::span<const NamedTrace> traces);

}  // namespace megatrain
