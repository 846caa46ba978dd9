#include "core/plan/content.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace megatrain {

namespace {

std::string_view describe(Content::Sum sum) {
  switch (sum) {
    case Content::Sum::rank:
      return "this rank";
    case Content::Sum::shard_group:
      return "the shard group";
    case Content::Sum::all:
      return "all ranks";
  }
  return "?";
}

std::string describe(const Content& c) {
  using Kind = Content::Kind;
  switch (c.kind) {
    case Kind::none:
      return "nothing";
    case Kind::weights:
      return fmt::format("weights of unit {}, version {}", c.unit, c.version);
    case Kind::states:
      return fmt::format("optimizer states of unit {}, version {}", c.unit, c.version);
    case Kind::slice:
      return fmt::format("a slice of the weights of unit {}, version {}", c.unit, c.version);
    case Kind::rows:
      return fmt::format("embedding rows of wave {}, version {}", c.wave, c.version);
    case Kind::boundary:
      return fmt::format("the boundary of unit {}, micro-batch {}", c.unit, c.micro_batch);
    case Kind::gradient:
      return fmt::format("the gradient entering unit {}, micro-batch {}", c.unit, c.micro_batch);
    case Kind::kept:
      return fmt::format("kept intermediates of unit {}, micro-batch {}", c.unit, c.micro_batch);
    case Kind::recomputed:
      return fmt::format("intermediates of unit {}, micro-batch {}", c.unit, c.micro_batch);
    case Kind::accumulator:
      return fmt::format("the gradient of unit {} over {} micro-batches (head's share {}) of {}",
                         c.unit, c.next, c.next_head, describe(c.sum));
    case Kind::wire:
      return fmt::format("the wire gradient of unit {}, {} elements from {}", c.unit, c.count,
                         c.first);
    case Kind::finished:
      return fmt::format("the finished gradient of unit {}, {} elements", c.unit, c.count);
  }
  return "?";
}

}  // namespace

ContentTracker::ContentTracker(const Plan& plan)
    : plan_(plan),
      contents_(plan.buffers.size()),
      clean_(plan.buffers.size(), false),
      overlaps_(plan.buffers.size()),
      versions_(static_cast<std::size_t>(plan.units), 0),
      host_versions_(versions_),
      homes_(plan.buffers.size(), false) {
  for (const Instruction& i : plan.body.instructions) {
    if (i.op == OpCode::upload)
      batch_begin_ = plan.buffer(plan.body.buffer(i, Role::destination)).offset;
    if (i.op == OpCode::device_update)
      homes_[static_cast<std::size_t>(plan.body.buffer(i, Role::weights))] = true;
    if (i.op == OpCode::download)
      losses_begin_ = plan.buffer(plan.body.buffer(i, Role::source)).offset;
  }
  // Views overlap their allocation and one another; sorted by offset, overlaps are neighbours.
  std::vector<BufferId> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](BufferId a, BufferId b) {
    const Buffer& x = plan.buffer(a);
    const Buffer& y = plan.buffer(b);
    return std::pair(x.space, x.offset) < std::pair(y.space, y.offset);
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Buffer& x = plan.buffer(order[i]);
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      const Buffer& y = plan.buffer(order[j]);
      if (y.space != x.space || y.offset >= x.offset + x.bytes) break;
      overlaps_[static_cast<std::size_t>(order[i])].push_back(order[j]);
      overlaps_[static_cast<std::size_t>(order[j])].push_back(order[i]);
    }
  }
}

void ContentTracker::write(BufferId id, const Content& content) {
  for (const BufferId other : overlaps_[static_cast<std::size_t>(id)]) {
    at(other) = {};
    clean_[static_cast<std::size_t>(other)] = false;
  }
  at(id) = content;
}

std::string ContentTracker::expect(BufferId id, const Content& expected, std::string_view what) {
  if (id < 0) return {};
  if (at(id) == expected) return {};
  return fmt::format("{} '{}' holds {}, expected {}", what, plan_.buffer(id).name, describe(at(id)),
                     describe(expected));
}

std::string ContentTracker::expect_places(const InstructionList& list, const Instruction& i) const {
  for (const Operand& operand : list.operands_of(i)) {
    const Buffer& buffer = plan_.buffer(operand.buffer);
    if (buffer.space == MemorySpace::store && i.op != OpCode::collect && buffer.unit != i.unit)
      return fmt::format("'{}' is not of its unit", buffer.name);
    const bool batch = operand.role == Role::batch;
    if (!batch && !(operand.role == Role::losses && i.op != OpCode::logits)) continue;
    const Index begin = batch ? batch_begin_ : losses_begin_;
    if (buffer.offset != begin + i.micro_batch * buffer.bytes)
      return fmt::format("'{}' is not of its micro-batch", buffer.name);
  }
  return {};
}

Content ContentTracker::newest(Kind kind, std::int32_t unit) const {
  return {.kind = kind, .unit = unit, .version = versions_[static_cast<std::size_t>(unit)]};
}

Content::Kind ContentTracker::held_kind() const {
  return plan_.choices.slicing.count > 1 ? Kind::slice : Kind::weights;
}

Content::Sum ContentTracker::carried_sum() const {
  return plan_.choices.slicing.count > 1 ? Content::Sum::shard_group : Content::Sum::rank;
}

Content::Sum ContentTracker::full_sum() const {
  return plan_.choices.replicas > 1 ? Content::Sum::all : carried_sum();
}

std::string ContentTracker::expect_sum(const InstructionList& list, const Instruction& i,
                                       Content::Sum sum) {
  const Content& content = at(list.buffer(i, Role::gradient));
  if (content.kind == Kind::accumulator && content.unit == i.unit && content.sum == sum) return {};
  return fmt::format("the accumulator holds {}, expected the sum of {}", describe(content),
                     describe(sum));
}

std::string ContentTracker::expect_weights(const InstructionList& list, const Instruction& i) {
  if (std::string wrong =
          expect(list.find(i, Role::weights), newest(Kind::weights, i.unit), "slot");
      !wrong.empty())
    return wrong;
  if (std::string wrong = expect(list.find(i, Role::table), newest(Kind::weights, 0), "slot");
      !wrong.empty())
    return wrong;
  const Content rows{.kind = Kind::rows, .wave = i.wave, .version = versions_[0]};
  return expect(list.find(i, Role::rows), rows, "rows");
}

std::string ContentTracker::accumulate(BufferId id, const Instruction& i, std::int32_t unit,
                                       bool head_share) {
  if (id < 0) return {};
  if (!clean_[static_cast<std::size_t>(id)])
    return fmt::format("accumulator '{}' was never cleared", plan_.buffer(id).name);
  Content& content = at(id);
  if (!i.accumulate && i.micro_batch != 0)
    return fmt::format("micro-batch {} overwrites the gradient of earlier ones", i.micro_batch);
  const bool adds = i.accumulate || (unit == 0 && !head_share);
  Content expected = content;
  if (!i.accumulate && !(unit == 0 && !head_share))
    expected = Content{.kind = Kind::accumulator, .unit = unit};
  else if (content.kind == Kind::none && unit == 0 && !head_share)
    expected = Content{.kind = Kind::accumulator, .unit = 0};  // cleared, first tokens
  const std::int32_t next = head_share ? expected.next_head : expected.next;
  if (adds && (expected.kind != Kind::accumulator || expected.sum != Content::Sum::rank ||
               expected.unit != unit || next != i.micro_batch))
    return fmt::format("accumulator '{}' holds {} when micro-batch {} of unit {} is added",
                       plan_.buffer(id).name, describe(content), i.micro_batch, unit);
  (head_share ? expected.next_head : expected.next) = i.micro_batch + 1;
  content = expected;
  return {};
}

void ContentTracker::begin_run(bool updates) {
  if (updates) ++runs_;
  handed_over_ = 0;
}

std::string ContentTracker::issue(const InstructionList& list, const Instruction& i) {
  if (std::string wrong = expect_places(list, i); !wrong.empty()) return wrong;
  switch (i.op) {
    case OpCode::update: {
      Content& gradient = at(list.buffer(i, Role::host_gradient));
      const Index elements_bytes = plan_.buffer(list.buffer(i, Role::host_gradient)).bytes;
      const Index elements = elements_bytes / plan_.choices.gradient_bytes();
      const bool nothing_pending = gradient.kind == Kind::none;
      if (!nothing_pending && !(gradient.kind == Kind::finished && gradient.count == elements))
        return fmt::format("the host holds {}", describe(gradient));
      gradient = {};
      host_versions_[static_cast<std::size_t>(i.unit)] =
          ++versions_[static_cast<std::size_t>(i.unit)];
      return {};
    }
    case OpCode::device_update:
      return update_on_device(list, i);
    case OpCode::snapshot: {
      const auto version = host_versions_[static_cast<std::size_t>(i.unit)];
      if (version != runs_)
        return fmt::format("hands over version {} of the state, expected {}", version, runs_);
      if (i.unit != handed_over_++)
        return fmt::format("a reader expects unit {} next", handed_over_ - 1);
      return {};
    }
    case OpCode::zero:
      write(list.buffer(i, Role::destination), {});
      clean_[static_cast<std::size_t>(list.buffer(i, Role::destination))] = true;
      return {};
    case OpCode::release: {
      Content& slot = at(list.buffer(i, Role::weights));
      if (slot.kind != Kind::weights || slot.unit != i.unit)
        return fmt::format("the slot holds {}", describe(slot));
      slot = {};
      return {};
    }
    case OpCode::embed:
    case OpCode::forward:
    case OpCode::head:
    case OpCode::evaluate:
    case OpCode::logits:
    case OpCode::recompute:
    case OpCode::backward:
    case OpCode::embed_backward:
      return compute(list, i);
    default:
      return move(list, i);
  }
}

std::string ContentTracker::expect_states(const InstructionList& list, const Instruction& i) {
  const BufferId slot = list.buffer(i, Role::weights);
  // After an all-gather the slot holds more than the slice that the states are of.
  const bool whole = at(slot).kind == Kind::weights || plan_.choices.slicing.count == 1;
  if (std::string wrong = expect(slot, newest(whole ? Kind::weights : Kind::slice, i.unit), "slot");
      !wrong.empty())
    return wrong;
  return expect(list.buffer(i, Role::device_state), newest(Kind::states, i.unit), "states");
}

std::string ContentTracker::update_on_device(const InstructionList& list, const Instruction& i) {
  if (std::string wrong = expect_states(list, i); !wrong.empty()) return wrong;
  const BufferId wire = list.buffer(i, Role::wire);
  const Index elements = plan_.buffer(wire).bytes / size_of(plan_.choices.wire());
  const Content& gradient = at(wire);
  const bool whole = gradient.kind == Kind::wire && gradient.unit == i.unit &&
                     gradient.first == 0 && gradient.count == elements;
  const bool nothing_pending = gradient.kind == Kind::none;
  if (!nothing_pending && !whole) return fmt::format("the device holds {}", describe(gradient));
  write(wire, {});
  ++versions_[static_cast<std::size_t>(i.unit)];
  write(list.buffer(i, Role::weights), newest(held_kind(), i.unit));
  write(list.buffer(i, Role::device_state), newest(Kind::states, i.unit));
  return {};
}

std::string ContentTracker::compute(const InstructionList& list, const Instruction& i) {
  std::string wrong;
  const auto must = [&](std::string text) {
    if (wrong.empty()) wrong = std::move(text);
  };
  const auto boundary = [&](std::int32_t unit) {
    return Content{.kind = Kind::boundary, .unit = unit, .micro_batch = i.micro_batch};
  };
  const auto of_unit = [&](Kind kind) {
    return Content{.kind = kind, .unit = i.unit, .micro_batch = i.micro_batch};
  };
  const BufferId input = list.find(i, Role::input);
  const BufferId output = list.find(i, Role::output);
  const BufferId kept = list.find(i, Role::kept);
  const BufferId recomputed = list.find(i, Role::recomputed);
  const BufferId stream = list.find(i, Role::gradient_stream);
  if (i.op != OpCode::embed_backward) must(expect_weights(list, i));
  if (input >= 0) must(expect(input, boundary(i.unit), "input"));

  switch (i.op) {
    case OpCode::forward:
      if (kept >= 0) write(kept, of_unit(Kind::kept));
      write(recomputed, {});
      break;
    case OpCode::recompute:
      if (kept >= 0) must(expect(kept, of_unit(Kind::kept), "kept"));
      write(recomputed, of_unit(Kind::recomputed));
      break;
    case OpCode::head:
      must(expect(stream, boundary(i.unit), "input"));
      write(stream, {.kind = Kind::gradient, .unit = i.unit, .micro_batch = i.micro_batch});
      must(accumulate(list.find(i, Role::gradient), i, i.unit, false));
      must(accumulate(list.find(i, Role::table_gradient), i, 0, true));
      break;
    case OpCode::backward:
      if (kept >= 0) must(expect(kept, of_unit(Kind::kept), "kept"));
      must(expect(recomputed, of_unit(Kind::recomputed), "intermediates"));
      must(expect(stream,
                  {.kind = Kind::gradient, .unit = i.unit + 1, .micro_batch = i.micro_batch},
                  "gradient"));
      if (kept >= 0) write(kept, {});
      write(recomputed, {});
      write(stream, of_unit(Kind::gradient));
      must(accumulate(list.find(i, Role::gradient), i, i.unit, false));
      break;
    case OpCode::embed_backward:
      must(expect(stream, {.kind = Kind::gradient, .unit = 1, .micro_batch = i.micro_batch},
                  "gradient"));
      must(accumulate(list.find(i, Role::gradient), i, 0, false));
      break;
    default:
      break;
  }
  if (output >= 0) write(output, boundary(i.unit + 1));
  return wrong;
}

std::string ContentTracker::move(const InstructionList& list, const Instruction& i) {
  switch (i.op) {
    case OpCode::gather:
      write(list.buffer(i, Role::destination),
            {.kind = Kind::rows, .wave = i.wave, .version = versions_[0]});
      return {};
    case OpCode::fetch:
      if (const BufferId rows = list.find(i, Role::source); rows >= 0) {
        const Content expected{.kind = Kind::rows, .wave = i.wave, .version = versions_[0]};
        write(list.buffer(i, Role::destination), at(rows));
        return expect(rows, expected, "rows");
      }
      write(list.buffer(i, Role::weights),
            {.kind = held_kind(),
             .unit = i.unit,
             .version = host_versions_[static_cast<std::size_t>(i.unit)]});
      return {};
    case OpCode::state_up:
      write(list.buffer(i, Role::weights), newest(held_kind(), i.unit));
      write(list.buffer(i, Role::device_state), newest(Kind::states, i.unit));
      return {};
    case OpCode::state_down:
      if (std::string wrong = expect_states(list, i); !wrong.empty()) return wrong;
      host_versions_[static_cast<std::size_t>(i.unit)] =
          versions_[static_cast<std::size_t>(i.unit)];
      return {};
    case OpCode::all_gather: {
      const BufferId slot = list.buffer(i, Role::weights);
      std::string wrong = expect(slot, newest(Kind::slice, i.unit), "slot");
      at(slot).kind = Kind::weights;
      return wrong;
    }
    case OpCode::sum_parts: {
      Content& content = at(list.buffer(i, Role::gradient));
      if (std::string wrong = expect_sum(list, i, Content::Sum::rank); !wrong.empty()) return wrong;
      // What came later would be a part's own again, and a sum of sums counts the parts twice.
      if (content.parts || content.next != static_cast<std::int32_t>(plan_.choices.micro_batches))
        return fmt::format("the parts' sum of {}, which is {}", describe(content),
                           content.parts ? "one already" : "not finished");
      content.parts = true;
      return {};
    }
    case OpCode::reduce_scatter: {
      std::string wrong = expect_sum(list, i, Content::Sum::rank);
      at(list.buffer(i, Role::gradient)).sum = Content::Sum::shard_group;
      return wrong;
    }
    case OpCode::all_reduce: {
      std::string wrong = expect_sum(list, i, carried_sum());
      at(list.buffer(i, Role::gradient)).sum = Content::Sum::all;
      return wrong;
    }
    case OpCode::spill:
    case OpCode::unspill: {
      const BufferId source = list.buffer(i, Role::source);
      // What enters a block, or what it keeps: who gets it back knows which.
      const Kind kind = at(source).kind == Kind::kept ? Kind::kept : Kind::boundary;
      const Content expected{.kind = kind, .unit = i.unit, .micro_batch = i.micro_batch};
      write(list.buffer(i, Role::destination), at(source));
      return expect(source, expected, "boundary");
    }
    case OpCode::carry_up: {
      const BufferId accumulator = list.buffer(i, Role::gradient);
      Content carried = at(list.buffer(i, Role::host_gradient));
      // A slice that comes back counts once: the ranks' other elements must be zero.
      const bool zero =
          at(accumulator).kind == Kind::none && clean_[static_cast<std::size_t>(accumulator)];
      const bool sliced = plan_.choices.slicing.count > 1;
      if (carried.kind != Kind::accumulator || carried.unit != i.unit ||
          carried.sum != carried_sum())
        return fmt::format("the host holds {}", describe(carried));
      carried.sum = Content::Sum::rank;
      write(accumulator, carried);
      clean_[static_cast<std::size_t>(accumulator)] = true;
      return sliced && !zero ? "a slice is added to what was not cleared" : "";
    }
    case OpCode::carry_down: {
      write(list.buffer(i, Role::host_gradient), at(list.buffer(i, Role::gradient)));
      return expect_sum(list, i, carried_sum());
    }
    case OpCode::reduce: {
      const Content& content = at(list.buffer(i, Role::gradient));
      const auto all = static_cast<std::int32_t>(plan_.choices.micro_batches);
      if (std::string wrong = expect_sum(list, i, full_sum()); !wrong.empty()) return wrong;
      if (content.next != all)
        return fmt::format("the accumulator holds {} of {} micro-batches", describe(content), all);
      if (content.parts != plan_.sums_parts[static_cast<std::size_t>(i.unit)])
        return fmt::format("the accumulator holds {}, {} over the model's parts", describe(content),
                           content.parts ? "summed" : "not yet summed");
      write(list.buffer(i, Role::wire),
            {.kind = Kind::wire, .unit = i.unit, .first = i.first, .count = i.count});
      return {};
    }
    case OpCode::offload: {
      if (list.find(i, Role::wire) < 0) return {};  // partials alone
      const Content expected{
          .kind = Kind::wire, .unit = i.unit, .first = i.first, .count = i.count};
      Content& gradient = at(list.buffer(i, Role::host_gradient));
      const Index done = gradient.kind == Kind::finished ? gradient.count : 0;
      if (done != i.first) return fmt::format("a piece from {} follows {} elements", i.first, done);
      gradient = {.kind = Kind::finished, .unit = i.unit, .count = done + i.count};
      return expect(list.buffer(i, Role::wire), expected, "wire buffer");
    }
    default:
      return {};
  }
}

std::string ContentTracker::end_of_run() {
  for (std::size_t b = 0; b < contents_.size(); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.space == MemorySpace::device && !homes_[b] &&
        (contents_[b].kind == Kind::weights || contents_[b].kind == Kind::slice))
      return fmt::format("'{}' was fetched and never released ({})", buffer.name,
                         describe(contents_[b]));
  }
  const bool updates = plan_.choices.purpose == Purpose::train && runs_ > 0;
  if (updates && handed_over_ != plan_.units)
    return fmt::format("{} of {} units were handed over", handed_over_, plan_.units);
  return {};
}

}  // namespace megatrain
