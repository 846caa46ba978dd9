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
  return traces_to_json(std::array{NamedTrace{.name = "step", .trace = this}});
}

std::string traces_to_json(std::span<const NamedTrace> traces) {
  std::string json = R"({"displayTimeUnit":"ms","traceEvents":[)";
  std::string_view separator = "\n";
  const auto add = [&](const std::string& event) {
    json.append(separator).append(event);
    separator = ",\n";
  };
  const auto add_name = [&](std::string_view what, std::size_t process, std::size_t row,
                            std::string_view name) {
    add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}})", process,
                    row, what, name));
  };
  for (std::size_t p = 0; p < traces.size(); ++p) {
    const std::size_t process = p + 1;
    add_name("process_name", process, 0, traces[p].name);
    for (std::size_t s = 0; s < kStreams; ++s)
      add_name("thread_name", process, s, name(static_cast<StreamId>(s)));
    for (const TraceSpan& span : traces[p].trace->spans)
      add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f}}})",
                      process, static_cast<int>(span.stream), span.name, span.begin * 1e6,
                      (span.end - span.begin) * 1e6));
  }
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
