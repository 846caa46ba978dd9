#include "core/plan/simulator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatrain::testing {
namespace {

/// A body written down by hand, on a machine where a byte and an operation take a second.
class Script {
 public:
  Script() {
    rates_.flops = rates_.attention = rates_.attention_backward = rates_.device_bandwidth =
        rates_.slab_bandwidth = 1;
    rates_.to_device = rates_.to_host = rates_.peers = rates_.network = rates_.update = 1;
    rates_.host_memory = 1;
    rates_.launch = 1e-9;
  }
  /// What is left of each rate where copies and updates meet.
  Script& beside(double copies, double updates) {
    rates_.to_device_beside = rates_.to_host_beside = copies;
    rates_.update_beside = updates;
    return *this;
  }
  Script& add(OpCode op, StreamId stream, const Cost& cost,
              std::initializer_list<std::int32_t> after = {}) {
    Instruction i{.op = op, .stream = stream, .cost = cost};
    i.waits_begin = static_cast<std::uint32_t>(plan_.body.waits.size());
    for (const std::int32_t on : after) plan_.body.waits.push_back({on, 0});
    i.waits_end = static_cast<std::uint32_t>(plan_.body.waits.size());
    plan_.body.instructions.push_back(i);
    return *this;
  }
  /// [begin, end) of each instruction, whole seconds.
  std::vector<std::pair<Index, Index>> run() {
    // A step ends when all of it has.
    const std::size_t size = plan_.body.instructions.size();
    add(OpCode::collect, StreamId::host, {});
    for (std::size_t n = 0; n < size; ++n)
      plan_.body.waits.push_back({static_cast<std::int32_t>(n), 0});
    plan_.body.instructions.back().waits_end = static_cast<std::uint32_t>(plan_.body.waits.size());
    std::vector<std::pair<Index, Index>> spans;
    for (const TraceSpan& span : simulate(plan_, rates_).trace.spans)
      spans.emplace_back(std::llround(span.begin), std::llround(span.end));
    spans.pop_back();
    return spans;
  }

 private:
  Plan plan_;
  Rates rates_;
};

using Spans = std::vector<std::pair<Index, Index>>;

TEST(Simulator, CopiesOfOneDirectionShareTheLink) {
  // The fetch and what comes back of the spilled are ready at once, and both go to the device.
  EXPECT_EQ(Script()
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 10})
                .add(OpCode::unspill, StreamId::spill, {.link_bytes = 5})
                .run(),
            (Spans{{0, 10}, {0, 15}}));
  // Each has its own direction.
  EXPECT_EQ(Script()
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 10})
                .add(OpCode::spill, StreamId::spill, {.link_bytes = 5})
                .run(),
            (Spans{{0, 10}, {0, 5}}));
  EXPECT_EQ(Script()
                .add(OpCode::spill, StreamId::spill, {.link_bytes = 5})
                .add(OpCode::offload, StreamId::offload, {.link_bytes = 10})
                .run(),
            (Spans{{0, 5}, {0, 15}}));
}

TEST(Simulator, ACopyTakesWhatEarlierOnesLeave) {
  // Seconds 4 to 10 are taken first: what may begin at 0 fills the gap before, and goes on after.
  const Cost four{.flops = 4};
  EXPECT_EQ(Script()
                .add(OpCode::forward, StreamId::compute, four)
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 6}, {0})
                .add(OpCode::unspill, StreamId::spill, {.link_bytes = 3})
                .add(OpCode::unspill, StreamId::spill, {.link_bytes = 5})
                .run(),
            (Spans{{0, 4}, {4, 10}, {0, 3}, {3, 14}}));
  // What begins in the middle of it waits for its end.
  EXPECT_EQ(Script()
                .add(OpCode::forward, StreamId::compute, four)
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 6})
                .add(OpCode::unspill, StreamId::spill, {.link_bytes = 1}, {0})
                .run(),
            (Spans{{0, 4}, {0, 6}, {4, 7}}));
}

TEST(Simulator, CopiesAndUpdatesSlowEachOther) {
  // Until second 8 the host updates: the copy has done 4 by then, and does 2 more alone.
  EXPECT_EQ(Script()
                .beside(0.5, 1)
                .add(OpCode::update, StreamId::update, {.host_elements = 8})
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 6})
                .run(),
            (Spans{{0, 8}, {0, 10}}));
  // Both directions are busy for as long as it updates.
  EXPECT_EQ(Script()
                .beside(1, 0.5)
                .add(OpCode::update, StreamId::update, {.host_elements = 8})
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 20})
                .add(OpCode::offload, StreamId::offload, {.link_bytes = 20})
                .run(),
            (Spans{{0, 16}, {0, 20}, {0, 20}}));
  // One direction of two is half of it.
  EXPECT_EQ(Script()
                .beside(1, 0.5)
                .add(OpCode::update, StreamId::update, {.host_elements = 8})
                .add(OpCode::fetch, StreamId::fetch, {.link_bytes = 20})
                .run(),
            (Spans{{0, 12}, {0, 20}}));
}

}  // namespace
}  // namespace megatrain::testing
