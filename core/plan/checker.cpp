#include "core/plan/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/plan/content.h"

namespace megatrain {

namespace {

/// The order in which the lists are unrolled: body and epilogue after themselves and each other.
enum class Run : std::uint8_t { prologue, body, epilogue };
constexpr std::array kRuns = {Run::prologue, Run::body,     Run::body,
                              Run::epilogue, Run::epilogue, Run::body};
constexpr std::array<std::string_view, kRuns.size()> kRunNames = {
    "the prologue", "body 1", "body 2", "the epilogue", "the epilogue again", "body 3"};

/// An instruction of the unrolled lists.
struct Step {
  const Instruction* instruction;
  const InstructionList* list;
  std::size_t run;  ///< in kRuns
  Clock clock;
};

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan) {}

  CheckReport run() {
    check_buffers();
    for (std::size_t run = 0; run < kRuns.size(); ++run) unroll(run);
    check_host_waits();
    check_contents();
    check_races();
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
                       s.instruction - s.list->instructions.data(), kRunNames[s.run],
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

  /// Appends a run of a list.
  void unroll(std::size_t run) {
    const bool prologue = kRuns[run] == Run::prologue;
    const InstructionList& list = prologue ? plan_.prologue : plan_.body;
    std::vector<std::int32_t> order = plan_.epilogue;
    if (kRuns[run] != Run::epilogue) {
      order.resize(list.instructions.size());
      std::iota(order.begin(), order.end(), 0);
    }
    if (run == 0 || kRuns[run - 1] == Run::prologue) latest_.assign(list.instructions.size(), -1);
    // Who runs a prologue or an epilogue waits for its end; readers may still be at work.
    if (run > 0 && kRuns[run - 1] != Run::body) {
      floor_ = last_;
      floor_[static_cast<std::size_t>(StreamId::snapshot)] = -1;
    }
    const std::vector<std::int32_t> before = latest_;
    for (const std::int32_t i : order)
      if (static_cast<std::size_t>(i) < list.instructions.size())
        append(list, static_cast<std::size_t>(i), run, before);
      else
        problem("{} names instruction {}, which the body has not", kRunNames[run], i);
  }

  /// Appends an instruction; its clock says which earlier steps are known to have ended before it
  /// begins.
  /// @param before  latest_ when this run of the list began
  void append(const InstructionList& list, std::size_t i, std::size_t run,
              const std::vector<std::int32_t>& before) {
    const Instruction& instruction = list.instructions[i];
    const auto stream = static_cast<std::size_t>(instruction.stream);
    const auto sequence = static_cast<std::int32_t>(steps_.size());
    Step step{&instruction, &list, run, floor_};
    const auto know = [&](const Clock& ended) {
      for (std::size_t s = 0; s < kStreams; ++s) step.clock[s] = std::max(step.clock[s], ended[s]);
    };
    if (last_[stream] >= 0) know(steps_[static_cast<std::size_t>(last_[stream])].clock);
    for (const Wait& wait : list.waits_of(instruction)) {
      const auto other = static_cast<std::size_t>(wait.instruction);
      const bool in_list = other < list.instructions.size();
      const bool same_run = wait.bodies_back == 0;
      const std::int32_t on = !in_list ? -1 : same_run ? latest_[other] : before[other];
      if (in_list && !same_run && on < 0) continue;  // there was no run before this one
      // An epilogue cannot wait for what it leaves out of the body.
      if (on < 0 || (same_run && steps_[static_cast<std::size_t>(on)].run != run)) {
        problem("instruction {} of {} waits for {}, which is not issued before it", i,
                kRunNames[run], wait.instruction);
        continue;
      }
      know(steps_[static_cast<std::size_t>(on)].clock);
    }
    step.clock[stream] = sequence;
    last_[stream] = sequence;
    latest_[i] = sequence;
    steps_.push_back(step);
  }

  [[nodiscard]] bool ordered(std::int32_t earlier, std::int32_t later) const {
    const auto stream =
        static_cast<std::size_t>(steps_[static_cast<std::size_t>(earlier)].instruction->stream);
    return steps_[static_cast<std::size_t>(later)].clock[stream] >= earlier;
  }

  void check_host_waits() {
    for (const InstructionList* list : {&plan_.prologue, &plan_.body})
      for (const Instruction& instruction : list->instructions)
        for (const Wait& wait : list->waits_of(instruction))
          check_host_wait(*list, instruction, static_cast<std::size_t>(wait.instruction));
    if (plan_.body.instructions.empty() || plan_.body.instructions.back().op != OpCode::collect)
      problem("a body ends with collecting its results");
  }

  void check_host_wait(const InstructionList& list, const Instruction& i, std::size_t other) {
    if (other >= list.instructions.size()) return;  // unroll() reports it
    const Instruction& on = list.instructions[other];
    const auto report = [&](std::string_view what) {
      problem("'{}' (#{}) {} ('{}')", describe(i, plan_.units), &i - list.instructions.data(), what,
              describe(on, plan_.units));
    };
    // A reader's worker alone may wait for states to come down.
    const bool hands_over = i.op == OpCode::snapshot && on.op == OpCode::state_down;
    const bool host_work = !on_device(i.stream) && i.op != OpCode::collect && !hands_over;
    if (host_work && on_device(on.stream))
      report("is host work and waits for the device inside a step");
    const bool worker = i.stream == StreamId::update || i.stream == StreamId::snapshot;
    // States come down only for a reader, who may still be at the state before.
    if (on.stream == StreamId::snapshot && !worker && i.op != OpCode::state_down)
      report("makes the issuing thread wait for a reader");
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
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const auto add = [&](const std::string& wrong) {
        if (!wrong.empty()) problem("{}: {}", text(static_cast<std::int32_t>(i)), wrong);
      };
      if (i == 0 || steps_[i - 1].run != step.run)
        tracker.begin_run(kRuns[step.run] != Run::prologue);
      add(tracker.issue(*step.list, *step.instruction));
      if (i + 1 == steps_.size() || steps_[i + 1].run != step.run) add(tracker.end_of_run());
    }
  }

  const Plan& plan_;
  CheckReport report_;
  std::vector<Step> steps_;
  Clock last_ = kNothingEnded;
  Clock floor_ = kNothingEnded;       ///< what ended before the run began
  std::vector<std::int32_t> latest_;  ///< of each instruction of the list: its latest step
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
