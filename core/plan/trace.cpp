#include "core/plan/trace.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain {

namespace {

using Interval = std::pair<double, double>;

/// The union of a stream's spans as disjoint intervals in order.
std::vector<Interval> intervals(const Trace& trace, StreamId stream) {
  std::vector<Interval> all;
  for (const TraceSpan& span : trace.spans)
    if (span.stream == stream && span.end > span.begin) all.emplace_back(span.begin, span.end);
  std::ranges::sort(all);
  std::vector<Interval> merged;
  for (const Interval& interval : all) {
    if (!merged.empty() && interval.first <= merged.back().second)
      merged.back().second = std::max(merged.back().second, interval.second);
    else
      merged.push_back(interval);
  }
  return merged;
}

}  // namespace

std::string Trace::to_json() const {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (std::size_t s = 0; s < kStreams; ++s)
    json += fmt::format(
        "{}{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}"
        "}}}",
        s == 0 ? "\n" : ",\n", s, name(static_cast<StreamId>(s)));
  for (const TraceSpan& span : spans)
    json += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f}}}",
        static_cast<int>(span.stream), span.name, span.begin * 1e6, (span.end - span.begin) * 1e6);
  return json + "\n]}\n";
}

double Trace::busy(StreamId stream) const {
  double total = 0;
  for (const auto& [begin, end] : intervals(*this, stream)) total += end - begin;
  return total;
}

double Trace::overlap(StreamId a, StreamId b) const {
  const std::vector<Interval> x = intervals(*this, a);
  const std::vector<Interval> y = intervals(*this, b);
  double total = 0;
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    total += std::max(0.0, std::min(x[i].second, y[j].second) - std::max(x[i].first, y[j].first));
    if (x[i].second < y[j].second)
      ++i;
    else
      ++j;
  }
  return total;
}

}  // namespace megatrain
