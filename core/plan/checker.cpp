#include "core/plan/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/plan/content.h"

namespace megatrain {

namespace {

/// An instruction of the unrolled lists.
struct Step {
  const Instruction* instruction;
  const InstructionList* list;
  int body;  ///< -1 prologue, 0 and 1 bodies, 2 epilogue
  std::array<std::int32_t, kStreams> clock;
};

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan) {}

  CheckReport run() {
    check_buffers();
    unroll(plan_.prologue, -1);
    unroll(plan_.body, 0);
    unroll(plan_.body, 1);
    unroll(plan_.epilogue, 2);
    check_host_waits();
    check_races();
    check_contents();
    return std::move(report_);
  }

 private:
  static constexpr std::size_t kMostProblems = 20;

  template <class... Arguments>
  void problem(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (report_.problems.size() < kMostProblems)
      report_.problems.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  [[nodiscard]] std::string text(std::int32_t step) const {
    const Step& s = steps_[static_cast<std::size_t>(step)];
    return fmt::format("'{}' (#{} of {}, {} stream)", describe(*s.instruction, plan_.units),
                       s.instruction - s.list->instructions.data(),
                       s.body < 0   ? "the prologue"
                       : s.body > 1 ? "the epilogue"
                                    : fmt::format("body {}", s.body + 1),
                       name(s.instruction->stream));
  }

  void check_buffers() {
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.space == MemorySpace::store) continue;
      const Index size =
          buffer.space == MemorySpace::device ? plan_.device_bytes : plan_.pinned_bytes;
      if (buffer.offset < 0 || buffer.bytes <= 0 || buffer.offset + buffer.bytes > size)
        problem("buffer '{}' lies outside its memory ({} + {} of {} bytes)", buffer.name,
                buffer.offset, buffer.bytes, size);
    }
  }

  /// Appends a list; clocks say which earlier steps are known to have ended before each begins.
  void unroll(const InstructionList& list, int body) {
    const auto begin = static_cast<std::int32_t>(steps_.size());
    const auto size = static_cast<std::int32_t>(list.instructions.size());
    for (std::int32_t i = 0; i < size; ++i) {
      const Instruction& instruction = list.instructions[static_cast<std::size_t>(i)];
      const auto stream = static_cast<std::size_t>(instruction.stream);
      Step step{&instruction, &list, body, {}};
      step.clock.fill(-1);
      if (last_[stream] >= 0) step.clock = steps_[static_cast<std::size_t>(last_[stream])].clock;
      for (const Wait& wait : list.waits_of(instruction)) {
        std::int32_t on = begin + wait.instruction;
        if (wait.bodies_back == 1) {
          // The prologue and the epilogue stand in for a body that is not there.
          const bool has_previous = body == 1 || body == 2;
          const auto body_size = static_cast<std::int32_t>(plan_.body.instructions.size());
          if (!has_previous) continue;
          on = begin - body_size + wait.instruction;
        }
        const auto now = static_cast<std::int32_t>(steps_.size());
        if (on < 0 || on >= now) {
          problem("instruction {} of a list waits for {}, which is not issued before it", i,
                  wait.instruction);
          continue;
        }
        const Step& other = steps_[static_cast<std::size_t>(on)];
        for (std::size_t s = 0; s < kStreams; ++s)
          step.clock[s] = std::max(step.clock[s], other.clock[s]);
      }
      const auto sequence = static_cast<std::int32_t>(steps_.size());
      step.clock[stream] = sequence;
      last_[stream] = sequence;
      steps_.push_back(step);
    }
  }

  [[nodiscard]] bool ordered(std::int32_t earlier, std::int32_t later) const {
    const auto stream =
        static_cast<std::size_t>(steps_[static_cast<std::size_t>(earlier)].instruction->stream);
    return steps_[static_cast<std::size_t>(later)].clock[stream] >= earlier;
  }

  void check_host_waits() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(steps_.size()); ++i) {
      const Step& step = steps_[static_cast<std::size_t>(i)];
      const Instruction& instruction = *step.instruction;
      if (on_device(instruction.stream) || instruction.op == OpCode::collect) continue;
      for (const Wait& wait : step.list->waits_of(instruction)) {
        const Instruction& on = (wait.bodies_back == 1 ? plan_.body : *step.list)
                                    .instructions[static_cast<std::size_t>(wait.instruction)];
        if (on_device(on.stream))
          problem("{} is host work and waits for the device inside a step ('{}')", text(i),
                  describe(on, plan_.units));
      }
    }
    if (plan_.body.instructions.empty() || plan_.body.instructions.back().op != OpCode::collect) {
      problem("a body ends with collecting its results");
      return;
    }
  }

  struct Touch {
    std::int32_t write = -1;
    std::vector<std::int32_t> reads;
  };

  void check_races() {
    for (const MemorySpace space : {MemorySpace::device, MemorySpace::pinned, MemorySpace::store})
      check_races(space);
  }

  void check_races(MemorySpace space) {
    // Cut the space at every edge of every buffer: inside a piece all accesses are whole.
    std::vector<Index> edges;
    for (const Buffer& buffer : plan_.buffers)
      if (buffer.space == space) {
        edges.push_back(buffer.offset);
        edges.push_back(buffer.offset + buffer.bytes);
      }
    std::ranges::sort(edges);
    edges.erase(std::ranges::unique(edges).begin(), edges.end());
    std::vector<Touch> pieces(edges.size());
    const auto piece_of = [&](Index offset) {
      return static_cast<std::size_t>(std::ranges::lower_bound(edges, offset) - edges.begin());
    };
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(steps_.size()); ++i) {
      const Step& step = steps_[static_cast<std::size_t>(i)];
      for (const Operand& operand : step.list->operands_of(*step.instruction)) {
        const Buffer& buffer = plan_.buffer(operand.buffer);
        if (buffer.space != space) continue;
        const std::size_t end = piece_of(buffer.offset + buffer.bytes);
        for (std::size_t p = piece_of(buffer.offset); p < end; ++p) {
          Touch& touch = pieces[p];
          if (touch.write >= 0 && touch.write != i && !ordered(touch.write, i))
            race(touch.write, i, buffer);
          if (writes(operand.access)) {
            for (const std::int32_t read : touch.reads)
              if (read != i && !ordered(read, i)) race(read, i, buffer);
            touch.write = i;
            touch.reads.clear();
          } else {
            touch.reads.push_back(i);
          }
        }
      }
    }
  }

  void race(std::int32_t earlier, std::int32_t later, const Buffer& buffer) {
    problem("race on '{}': {} and {} are not ordered", buffer.name, text(earlier), text(later));
  }

  void check_contents() {
    ContentTracker tracker(plan_);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(steps_.size()); ++i) {
      const Step& step = steps_[static_cast<std::size_t>(i)];
      if (const std::string wrong = tracker.issue(*step.list, *step.instruction); !wrong.empty())
        problem("{}: {}", text(i), wrong);
      if (step.instruction->op == OpCode::collect)
        if (const std::string wrong = tracker.end_of_body(); !wrong.empty())
          problem("{}: {}", text(i), wrong);
    }
  }

  const Plan& plan_;
  CheckReport report_;
  std::vector<Step> steps_;
  std::array<std::int32_t, kStreams> last_ = {-1, -1, -1, -1, -1, -1};
};

}  // namespace

std::string CheckReport::text() const {
  std::string all;
  for (const std::string& problem : problems) all += "  " + problem + "\n";
  return all;
}

CheckReport check(const Plan& plan) { return Checker(plan).run(); }

void require_checked(const Plan& plan) {
  if (const CheckReport report = check(plan); !report.ok())
    throw LogicError("internal error: the step plan is not sound:\n" + report.text());
}

}  // namespace megatrain
