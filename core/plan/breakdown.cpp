#include "core/plan/breakdown.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/plan/simulator.h"

namespace megatrain {

namespace {

std::optional<StepPart> waited_for(const Instruction& i) {
  switch (i.stream) {
    case StreamId::fetch:
    case StreamId::offload:
    case StreamId::spill:
      return StepPart::transfer;
    case StreamId::gather:
    case StreamId::scatter:
      return StepPart::communication;
    case StreamId::update:
      return i.op == OpCode::gather ? StepPart::transfer : StepPart::optimizer;
    case StreamId::host:
    case StreamId::snapshot:
      return StepPart::gaps;
    case StreamId::compute:
      return std::nullopt;
  }
  return std::nullopt;
}

class Breakdown {
 public:
  Breakdown(const Plan& plan, const Trace& trace, const Rates& rates)
      : body_(plan.body), spans_(trace.spans), rates_(rates) {
    const std::size_t size = body_.instructions.size();
    require(spans_.size() == size, "a trace that is broken down has a span an instruction");
    std::array<std::ptrdiff_t, kStreams> last{};
    last.fill(-1);
    std::ptrdiff_t held_by = -1;
    for (std::size_t n = 0; n < size; ++n) {
      const Instruction& i = body_.instructions[n];
      require(spans_[n].stream == i.stream, "the spans of a trace are the plan's instructions");
      before_on_stream_.push_back(last[static_cast<std::size_t>(i.stream)]);
      last[static_cast<std::size_t>(i.stream)] = static_cast<std::ptrdiff_t>(n);
      // The issuing thread waits for host work before it enqueues what needs it, and whatever comes
      // after is enqueued later still.
      for (const Wait& wait : body_.waits_of(i))
        if (wait.bodies_back == 0 && on_device(i.stream) &&
            !on_device(body_.instructions[static_cast<std::size_t>(wait.instruction)].stream))
          held_by = later(held_by, wait.instruction);
      held_by_.push_back(held_by);
      if (i.stream == StreamId::host) held_by = later(held_by, static_cast<std::ptrdiff_t>(n));
    }
  }

  StepBreakdown run() {
    double done = 0;  // the compute stream is accounted for until then
    for (std::size_t n = 0; n < spans_.size(); ++n) {
      result_.seconds = std::max(result_.seconds, spans_[n].end);
      if (spans_[n].stream != StreamId::compute || spans_[n].end <= done) continue;
      const double begin = std::max(spans_[n].begin, done);
      explain(static_cast<std::ptrdiff_t>(n), done, begin);
      compute(body_.instructions[n], spans_[n].end - begin);
      done = spans_[n].end;
    }
    // What follows the last kernel: the body's last instruction collects the results.
    if (!spans_.empty() && result_.seconds > done)
      explain_end(static_cast<std::ptrdiff_t>(spans_.size()) - 1, done);
    return result_;
  }

 private:
  void add(StepPart part, double seconds) {
    result_.parts[static_cast<std::size_t>(part)] += seconds;
  }
  [[nodiscard]] double end(std::ptrdiff_t n) const {
    return spans_[static_cast<std::size_t>(n)].end;
  }
  [[nodiscard]] double begin(std::ptrdiff_t n) const {
    return spans_[static_cast<std::size_t>(n)].begin;
  }
  /// Of two instructions (-1: none) the one that ended later; of two that ended together the first.
  [[nodiscard]] std::ptrdiff_t later(std::ptrdiff_t a, std::ptrdiff_t b) const {
    if (a < 0 || b < 0) return std::max(a, b);
    return end(b) > end(a) ? b : a;
  }

  /// What let instruction `n` begin: of all that had to end before, the last. -1: nothing.
  [[nodiscard]] std::ptrdiff_t cause(std::ptrdiff_t n) const {
    const auto at = static_cast<std::size_t>(n);
    std::ptrdiff_t last = -1;
    for (const Wait& wait : body_.waits_of(body_.instructions[at]))
      if (wait.bodies_back == 0) last = later(last, wait.instruction);
    return later(later(last, held_by_[at]), before_on_stream_[at]);
  }

  /// Accounts for [from, to), in which the compute stream was idle and after which `n` began.
  void explain(std::ptrdiff_t n, double from, double to) {
    while (to > from) {
      n = cause(n);
      const double ended = n < 0 ? from : std::clamp(end(n), from, to);
      add(StepPart::gaps, to - ended);
      if (ended <= from) return;
      const double began = std::clamp(begin(n), from, ended);
      // Work of the compute stream itself ends where the idle time begins.
      add(waited_for(body_.instructions[static_cast<std::size_t>(n)]).value_or(StepPart::gaps),
          ended - began);
      to = began;
    }
  }

  /// The same up to the end of the step, whose last instruction is `n`.
  void explain_end(std::ptrdiff_t n, double from) {
    const double began = std::clamp(begin(n), from, result_.seconds);
    add(StepPart::gaps, result_.seconds - began);
    explain(n, from, began);
  }

  void compute(const Instruction& i, double seconds) {
    if (i.op == OpCode::recompute) return add(StepPart::recompute, seconds);
    const ComputeSeconds predicted = compute_seconds(i, rates_);
    if (predicted.total() <= 0) return add(StepPart::small_kernels, seconds);
    const double scale = seconds / predicted.total();
    add(StepPart::products, scale * predicted.products);
    add(StepPart::attention, scale * predicted.attention);
    add(StepPart::small_kernels, scale * predicted.element_wise);
  }

  const InstructionList& body_;
  const std::vector<TraceSpan>& spans_;
  const Rates& rates_;
  std::vector<std::ptrdiff_t> before_on_stream_;
  /// Per instruction, the host work that the issuing thread had waited for last.
  std::vector<std::ptrdiff_t> held_by_;
  StepBreakdown result_;
};

}  // namespace

std::string_view name(StepPart part) {
  static constexpr std::array<std::string_view, kStepParts> kNames = {
      "products",          "attention",
      "small kernels",     "recompute",
      "exposed transfer",  "exposed communication",
      "exposed optimizer", "gaps"};
  return kNames[static_cast<std::size_t>(part)];
}

StepBreakdown break_down(const Plan& plan, const Trace& trace, const Rates& rates) {
  return Breakdown(plan, trace, rates).run();
}

}  // namespace megatrain
