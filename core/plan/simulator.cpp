#include "core/plan/simulator.h"

#include <algorithm>

namespace megatrain {

namespace {

double duration(const Instruction& i, const Rates& rates) {
  const Cost& cost = i.cost;
  const double link =
      i.stream == StreamId::offload || (i.stream == StreamId::spill && i.op == OpCode::spill)
          ? rates.to_host
          : rates.to_device;
  const double peers = i.op == OpCode::all_reduce ? rates.network : rates.peers;
  return compute_seconds(i, rates).total() + static_cast<double>(cost.link_bytes) / link +
         static_cast<double>(cost.peer_bytes) / peers +
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
      finish[n] = std::max(begin + duration(i, rates), issue);
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
