#include "core/plan/simulator.h"

#include <algorithm>
#include <vector>

namespace megatrain {

namespace {

/// How many times as long takes what goes at `beside` of its rate for a part of the time.
double stretch(double beside, double part) { return part / beside + (1 - part); }

/// Copies and updates share the host's memory, and each is slower for what it meets of the other.
/// All updates of a body run in its first `window` seconds.
struct HostUse {
  double window = 0;
  double updating = 0;  ///< part of it
  double copying = 0;   ///< part of it, of both directions
};

/// One direction of the link between host and device. Several streams copy over it, and together
/// they are no faster than one: a copy takes what those that were enqueued before it leave.
class Link {
 public:
  /// Copies that run before `until` take `times` as long.
  void stretch_until(double until, double times) {
    until_ = until;
    times_ = times;
  }
  /// @returns when a copy of so many seconds ends that may begin at `begin`
  double copy(double begin, double seconds) {
    auto next = std::ranges::upper_bound(taken_, begin, {}, &Interval::end);
    const auto first = next;
    Interval all{begin, begin};
    for (; next != taken_.end(); ++next) {
      const double room = copied(all.end, next->begin);
      if (room >= seconds) break;
      // Fills the gap and goes on behind what follows it.
      seconds -= room;
      all = {std::min(all.begin, next->begin), next->end};
    }
    all.end = end_of(all.end, seconds);
    // What it touches is one interval from now on.
    taken_.insert(taken_.erase(first, next), all);
    return all.end;
  }
  /// Seconds of [begin, end) in which it copies.
  [[nodiscard]] double busy(double begin, double end) const {
    double seconds = 0;
    for (const Interval& i : taken_)
      seconds += std::max(std::min(end, i.end) - std::max(begin, i.begin), 0.0);
    return seconds;
  }

 private:
  struct Interval {
    double begin = 0, end = 0;  ///< seconds
  };
  /// Seconds of copying that [begin, end) has room for.
  [[nodiscard]] double copied(double begin, double end) const {
    const double slow = std::clamp(until_ - begin, 0.0, std::max(end - begin, 0.0));
    return slow / times_ + std::max(end - begin, 0.0) - slow;
  }
  /// The other way round.
  [[nodiscard]] double end_of(double begin, double seconds) const {
    const double slow = std::max(until_ - begin, 0.0);
    return seconds <= slow / times_ ? begin + seconds * times_
                                    : begin + slow + seconds - slow / times_;
  }

  std::vector<Interval> taken_;  ///< disjoint, in order
  double until_ = 0;
  double times_ = 1;
};

bool goes_to_host(const Instruction& i) {
  return i.stream == StreamId::offload || (i.stream == StreamId::spill && i.op == OpCode::spill);
}

/// Runs bodies one after another.
class Simulator {
 public:
  Simulator(const Plan& plan, const Rates& alone)
      : body_(plan.body),
        rates_(shared_by(alone, plan.choices.slicing.count)),
        update_rate_(rates_.update_of(plan.choices.master, plan.choices.moments)),
        previous_(body_.instructions.size()),
        finish_(body_.instructions.size()) {
    // The first begins cold and knows nothing of how the host is used; the second has an idea of
    // it; from the third on all are alike.
    for (int body = 0; body < 2; ++body) run();
  }

  /// The next body. @param observe  receives its instructions and when each begins and ends
  template <typename Observe>
  void run(const Observe& observe) {
    begin_ = issue_;
    const double window_end = begin_ + use_.window;
    to_host_.stretch_until(window_end, stretch(rates_.to_host_beside, use_.updating));
    to_device_.stretch_until(window_end, stretch(rates_.to_device_beside, use_.updating));
    double updating = 0;
    double updated = begin_;
    for (std::size_t n = 0; n < finish_.size(); ++n) {
      const Instruction& i = body_.instructions[n];
      const double begin = perform(n);
      observe(i, begin - begin_, finish_[n] - begin_);
      if (i.cost.host_elements == 0) continue;
      updating += finish_[n] - begin;
      updated = std::max(updated, finish_[n]);
    }
    use_ = {.window = updated - begin_};
    if (updating > 0) {
      const double copying = to_host_.busy(begin_, updated) + to_device_.busy(begin_, updated);
      use_.updating = std::min(updating / use_.window, 1.0);
      use_.copying = copying / (2 * use_.window);
    }
    std::swap(previous_, finish_);
    ++bodies_;
  }
  void run() {
    run([](const Instruction&, double, double) {});
  }
  /// Of the last body.
  [[nodiscard]] double seconds() const { return issue_ - begin_; }

 private:
  /// @returns when instruction `n` begins; it ends at finish_[n]
  double perform(std::size_t n) {
    const Instruction& i = body_.instructions[n];
    double waits = 0;
    for (const Wait& wait : body_.waits_of(i)) {
      const auto on = static_cast<std::size_t>(wait.instruction);
      if (wait.bodies_back > 0 && bodies_ == 0) continue;
      const double end = wait.bodies_back > 0 ? previous_[on] : finish_[on];
      waits = std::max(waits, end);
      // The issuing thread itself waits for host work before it enqueues what needs it.
      if (on_device(i.stream) && !on_device(body_.instructions[on].stream))
        issue_ = std::max(issue_, end);
    }
    // Without a reader a snapshot is nothing at all; a step is predicted without one.
    const Index launches = i.stream == StreamId::snapshot ? 0 : std::max<Index>(i.cost.launches, 1);
    const double first_launch = launches > 0 ? rates_.launch : 0;
    double& stream_free = free_[static_cast<std::size_t>(i.stream)];
    const double begin = std::max({stream_free, waits, issue_ + first_launch});
    issue_ += rates_.launch * static_cast<double>(launches);
    // It cannot end before its last kernel is enqueued.
    finish_[n] = stream_free = std::max(end_of(i, begin), issue_);
    if (i.stream == StreamId::host) issue_ = std::max(issue_, finish_[n]);
    return begin;
  }

  double end_of(const Instruction& i, double begin) {
    const Cost& cost = i.cost;
    const double peers = i.op == OpCode::all_reduce ? rates_.network : rates_.peers;
    const double update = static_cast<double>(cost.host_elements) / update_rate_;
    const double end = begin + compute_seconds(i, rates_).total() +
                       static_cast<double>(cost.peer_bytes) / peers +
                       update * stretch(rates_.update_beside, use_.copying);
    if (cost.link_bytes == 0) return end;
    const auto bytes = static_cast<double>(cost.link_bytes);
    return goes_to_host(i) ? to_host_.copy(end, bytes / rates_.to_host)
                           : to_device_.copy(end, bytes / rates_.to_device);
  }

  const InstructionList& body_;
  Rates rates_;
  double update_rate_;                   ///< AdamW's, elements/s
  std::vector<double> previous_;         ///< when each instruction of the last body ended
  std::vector<double> finish_;           ///< and of this one
  std::array<double, kStreams> free_{};  ///< when each stream has done what it was given
  Link to_host_, to_device_;
  HostUse use_;  ///< of the last body
  double issue_ = 0;
  double begin_ = 0;
  int bodies_ = 0;
};

}  // namespace

ComputeSeconds compute_seconds(const Instruction& instruction, const Rates& rates) {
  const Cost& cost = instruction.cost;
  const bool backward = instruction.op == OpCode::backward;
  return {
      .products = cost.flops / rates.flops,
      .attention = cost.attention_flops / (backward ? rates.attention_backward : rates.attention),
      .element_wise = static_cast<double>(cost.device_bytes) / rates.device_bandwidth +
                      static_cast<double>(cost.slab_bytes) / rates.slab_bandwidth};
}

StreamId Simulation::bound() const {
  const auto busiest = std::ranges::max_element(busy);
  return static_cast<StreamId>(busiest - busy.begin());
}

Simulation simulate(const Plan& plan, const Rates& alone) {
  Simulation result;
  Simulator simulator(plan, alone);
  simulator.run([&](const Instruction& i, double begin, double end) {
    result.busy[static_cast<std::size_t>(i.stream)] += end - begin;
    result.trace.spans.push_back({describe(i, plan.units), i.stream, begin, end});
  });
  result.step_seconds = simulator.seconds();
  return result;
}

double predict_seconds(const Plan& plan, const Rates& alone) {
  Simulator simulator(plan, alone);
  simulator.run();
  return simulator.seconds();
}

}  // namespace megatrain
