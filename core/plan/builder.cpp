#include "core/plan/builder.h"

#include <algorithm>
#include <limits>

namespace megatrain {

void Scoreboard::split(Index at) {
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  const auto range = std::prev(after);
  if (range->first == at || range->second.end <= at) return;
  ranges_.emplace_hint(after, at, range->second);
  range->second.end = at;
}

template <class Visit>
void Scoreboard::visit(Index begin, Index end, Visit&& visit) {
  split(begin);
  split(end);
  Index at = begin;
  auto range = ranges_.lower_bound(begin);
  while (at < end) {
    if (range == ranges_.end() || range->first > at) {
      // A gap: nothing touched these bytes yet.
      const Index gap_end =
          range == ranges_.end() ? end : std::min(end, static_cast<Index>(range->first));
      range = ranges_.emplace_hint(range, at, Range{.end = gap_end});
    }
    visit(range->second);
    at = range->second.end;
    ++range;
  }
}

BufferId PlanBuilder::allocate(std::string name, MemorySpace space, Index bytes) {
  if (bytes == 0) return -1;
  const Index alignment = space == MemorySpace::pinned ? 4096 : 256;
  Index& used = space_bytes_[static_cast<std::size_t>(space)];
  const Index offset = used;
  const Index size = round_up(bytes, alignment);
  used = checked_add(used, size);
  plan_.buffers.push_back({std::move(name), space, offset, size, false, -1});
  plan_.device_bytes = space_bytes_[static_cast<std::size_t>(MemorySpace::device)];
  plan_.pinned_bytes = space_bytes_[static_cast<std::size_t>(MemorySpace::pinned)];
  return static_cast<BufferId>(plan_.buffers.size() - 1);
}

BufferId PlanBuilder::view(std::string name, BufferId of, Index offset, Index bytes) {
  if (of < 0 || bytes == 0) return -1;
  const Buffer& parent = plan_.buffer(of);
  require(offset >= 0 && offset + bytes <= parent.bytes, "a view lies inside its allocation");
  const Buffer part{std::move(name), parent.space, parent.offset + offset,
                    bytes,           true,         parent.unit};
  plan_.buffers.push_back(part);
  return static_cast<BufferId>(plan_.buffers.size() - 1);
}

BufferId PlanBuilder::store(std::string name, std::int32_t unit, Index bytes) {
  Index& used = space_bytes_[static_cast<std::size_t>(MemorySpace::store)];
  plan_.buffers.push_back({std::move(name), MemorySpace::store, used, bytes, false, unit});
  used = checked_add(used, bytes);
  return static_cast<BufferId>(plan_.buffers.size() - 1);
}

void PlanBuilder::begin(InstructionList& list) {
  list_ = &list;
  previous_begin_ = list_begin_;
  list_begin_ = static_cast<std::int32_t>(issued_.size());
}

void PlanBuilder::add(Instruction instruction, std::span<const Operand> operands) {
  require(list_ != nullptr, "a list is begun before instructions are added");
  const auto sequence = static_cast<std::int32_t>(issued_.size());
  const auto stream = static_cast<std::size_t>(instruction.stream);

  std::vector<std::int32_t> before;
  const auto depend = [&](std::int32_t on) {
    if (on >= 0) before.push_back(on);
  };
  instruction.operands_begin = static_cast<std::uint32_t>(list_->operands.size());
  for (const Operand& operand : operands) {
    if (operand.buffer < 0) continue;
    list_->operands.push_back(operand);
    const Buffer& buffer = plan_.buffer(operand.buffer);
    scoreboard(buffer.space)
        .visit(buffer.offset, buffer.offset + buffer.bytes, [&](Scoreboard::Range& range) {
          depend(range.write);
          if (writes(operand.access)) std::ranges::for_each(range.reads, depend);
        });
  }
  instruction.operands_end = static_cast<std::uint32_t>(list_->operands.size());

  // The latest first: waiting for it often implies the rest.
  std::ranges::sort(before, std::greater<>());
  before.erase(std::ranges::unique(before).begin(), before.end());
  Clock clock = kNothingEnded;
  if (const std::int32_t last = last_of_stream_[stream]; last >= 0)
    clock = issued_[static_cast<std::size_t>(last)].clock;
  instruction.waits_begin = static_cast<std::uint32_t>(list_->waits.size());
  for (const std::int32_t earlier : before) {
    const Issued& other = issued_[static_cast<std::size_t>(earlier)];
    if (clock[static_cast<std::size_t>(other.stream)] >= earlier) continue;
    for (std::size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], other.clock[s]);
    const bool same_list = earlier >= list_begin_;
    require(earlier >= previous_begin_, "waits reach back one body at most");
    list_->waits.push_back(
        {earlier - (same_list ? list_begin_ : previous_begin_), same_list ? 0 : 1});
  }
  instruction.waits_end = static_cast<std::uint32_t>(list_->waits.size());
  clock[stream] = sequence;

  for (const Operand& operand : operands) {
    if (operand.buffer < 0) continue;
    const Buffer& buffer = plan_.buffer(operand.buffer);
    scoreboard(buffer.space)
        .visit(buffer.offset, buffer.offset + buffer.bytes, [&](Scoreboard::Range& range) {
          if (writes(operand.access)) {
            range.write = sequence;
            range.reads = kNothingEnded;
          } else {
            range.reads[stream] = sequence;
          }
        });
  }
  issued_.push_back({instruction.stream, clock});
  last_of_stream_[stream] = sequence;
  list_->instructions.push_back(instruction);
}

}  // namespace megatrain
