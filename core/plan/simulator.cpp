#include "core/plan/simulator.h"

#include <algorithm>
#include <vector>

namespace megatrain {

namespace {

/// One direction of the link between host and device. Several streams copy over it, and together
/// they are no faster than one: a copy takes what those that were enqueued before it leave.
class Link {
 public:
  /// @returns when a copy of so many seconds ends that may begin at `begin`
  double copy(double begin, double seconds) {
    auto next = std::ranges::upper_bound(taken_, begin, {}, &Interval::end);
    const auto first = next;
    Interval all{begin, begin};
    while (true) {
      const double room = next == taken_.end() ? seconds : next->begin - all.end;
      if (room >= seconds) break;
      // Fills the gap and goes on behind what follows it.
      seconds -= std::max(room, 0.0);
      all = {std::min(all.begin, next->begin), next->end};
      ++next;
    }
    all.end += seconds;
    // What it touches is one interval from now on.
    taken_.insert(taken_.erase(first, next), all);
    return all.end;
  }

 private:
  struct Interval {
    double begin = 0, end = 0;  ///< seconds
  };
  std::vector<Interval> taken_;  ///< disjoint, in order
};

bool goes_to_host(const Instruction& i) {
  return i.stream == StreamId::offload || (i.stream == StreamId::spill && i.op == OpCode::spill);
}

/// What an instruction takes besides its copies over the link.
double seconds_off_the_link(const Instruction& i, const Rates& rates) {
  const Cost& cost = i.cost;
  const double peers = i.op == OpCode::all_reduce ? rates.network : rates.peers;
  return compute_seconds(i, rates).total() + static_cast<double>(cost.peer_bytes) / peers +
         static_cast<double>(cost.host_elements) / rates.update;
}

}  // namespace

ComputeSeconds compute_seconds(const Instruction& instruction, const Rates& rates) {
  const Cost& cost = instruction.cost;
  const bool backward = instruction.op == OpCode::backward;
  return {
      .products = cost.flops / rates.flops,
      .attention = cost.attention_flops / (backward ? rates.attention_backward : rates.attention),
      .element_wise = static_cast<double>(cost.device_bytes) / rates.device_bandwidth};
}

StreamId Simulation::bound() const {
  const auto busiest = std::ranges::max_element(busy);
  return static_cast<StreamId>(busiest - busy.begin());
}

Simulation simulate(const Plan& plan, const Rates& alone) {
  const Rates rates = shared_by(alone, plan.choices.slicing.count);
  Simulation result;
  const InstructionList& body = plan.body;
  const std::size_t size = body.instructions.size();
  std::vector<double> previous(size, 0);
  std::vector<double> finish(size, 0);
  std::array<double, kStreams> free{};
  Link to_host;
  Link to_device;
  const auto end_of = [&](const Instruction& i, double begin) {
    const double end = begin + seconds_off_the_link(i, rates);
    if (i.cost.link_bytes == 0) return end;
    const auto bytes = static_cast<double>(i.cost.link_bytes);
    return goes_to_host(i) ? to_host.copy(end, bytes / rates.to_host)
                           : to_device.copy(end, bytes / rates.to_device);
  };
  double issue = 0;
  double begin_of_body = 0;
  for (int run = 0; run < 2; ++run) {
    begin_of_body = issue;
    const bool steady = run == 1;
    for (std::size_t n = 0; n < size; ++n) {
      const Instruction& i = body.instructions[n];
      double waits = 0;
      for (const Wait& wait : body.waits_of(i)) {
        const auto on = static_cast<std::size_t>(wait.instruction);
        if (wait.bodies_back > 0 && run == 0) continue;
        const double end = wait.bodies_back > 0 ? previous[on] : finish[on];
        waits = std::max(waits, end);
        // The issuing thread itself waits for host work before it enqueues what needs it.
        if (on_device(i.stream) && !on_device(body.instructions[on].stream))
          issue = std::max(issue, end);
      }
      // Without a reader a snapshot is nothing at all; a step is predicted without one.
      const Index launches =
          i.stream == StreamId::snapshot ? 0 : std::max<Index>(i.cost.launches, 1);
      const double first_launch = launches > 0 ? rates.launch : 0;
      double& stream_free = free[static_cast<std::size_t>(i.stream)];
      const double begin = std::max({stream_free, waits, issue + first_launch});
      issue += rates.launch * static_cast<double>(launches);
      // It cannot end before its last kernel is enqueued.
      finish[n] = std::max(end_of(i, begin), issue);
      stream_free = finish[n];
      if (i.stream == StreamId::host) issue = std::max(issue, finish[n]);
      if (!steady) continue;
      result.busy[static_cast<std::size_t>(i.stream)] += finish[n] - begin;
      result.trace.spans.push_back(
          {describe(i, plan.units), i.stream, begin - begin_of_body, finish[n] - begin_of_body});
    }
    std::swap(previous, finish);
  }
  result.step_seconds = issue - begin_of_body;
  return result;
}

}  // namespace megatrain
