#include "core/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/device/cpu/cpu_device.h"
#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

TEST(Engine, LossFalls) {
  const PlanCase c = case_named("plain");
  Rig rig(c.config, c.choices);
  const double first = rig.step(0).loss_sum;
  for (int n = 0; n < 12; ++n) rig.step(0);
  EXPECT_LT(rig.step(0).loss_sum, 0.8 * first);
}

TEST(Engine, ANonFiniteStepChangesNoState) {
  const PlanCase c = case_named("tied");
  Rig skipping(c.config, c.choices);
  Rig plain(c.config, c.choices);
  skipping.step(0);
  plain.step(0);
  const StepResult bad = skipping.step(1, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(bad.decision.apply);
  EXPECT_FALSE(std::isfinite(bad.decision.norm));
  EXPECT_EQ(skipping.engine->applied_steps(), 1);
  skipping.engine->flush();
  plain.engine->flush();
  EXPECT_TRUE(skipping.snapshot() == plain.snapshot());
  // And training goes on from there.
  skipping.step(2);
  plain.step(2);
  skipping.engine->flush();
  plain.engine->flush();
  EXPECT_TRUE(skipping.snapshot() == plain.snapshot());
  EXPECT_EQ(skipping.engine->applied_steps(), 2);
}

TEST(Engine, FlushIsTheJustInTimeUpdate) {
  const PlanCase c = case_named("waves");
  Rig flushing(c.config, c.choices);
  Rig streaming(c.config, c.choices);
  for (int n = 0; n < 3; ++n) {
    flushing.step(n);
    flushing.engine->flush();
    streaming.step(n);
  }
  streaming.engine->flush();
  EXPECT_TRUE(flushing.snapshot() == streaming.snapshot());
}

TEST(Engine, EvaluationSeesTheNewestWeightsAndDisturbsNothing) {
  const PlanCase c = case_named("segments_spill_tied");
  Rig rig(c.config, c.choices);
  Rig undisturbed(c.config, c.choices);
  rig.step(0);
  undisturbed.step(0);
  const Batch batch = rig.batch(9);
  const std::span<const float> losses = rig.engine->evaluate(batch.inputs);
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  // Training on the same tokens next finds the same loss: both saw the state after step 0.
  const StepResult next = rig.step(9);
  EXPECT_EQ(next.loss_sum, sum);
  undisturbed.step(9);
  rig.engine->flush();
  undisturbed.engine->flush();
  EXPECT_TRUE(rig.snapshot() == undisturbed.snapshot());
}

TEST(Engine, OnlyCountedTargetsEnterTheLoss) {
  const PlanCase c = case_named("plain");
  Rig rig(c.config, c.choices);
  const Batch batch = rig.batch(0);
  EXPECT_LT(batch.valid_tokens, c.choices.step_tokens());
  const StepResult result = rig.step(0);
  const double mean = result.loss_sum / static_cast<double>(batch.valid_tokens);
  EXPECT_NEAR(mean, std::log(static_cast<double>(c.config.vocabulary)), 0.3);
}

TEST(Engine, MemoryIsWhatThePlanSays) {
  const PlanCase c = case_named("spill_some");
  Rig rig(c.config, c.choices);
  EXPECT_EQ(rig.engine->device_bytes(), rig.engine->plan(Purpose::train).device_bytes);
  EXPECT_EQ(rig.engine->pinned_bytes(), rig.engine->plan(Purpose::train).pinned_bytes);
}

TEST(Trace, NamesEveryInstructionAndShowsOverlap) {
  const PlanCase c = case_named("plain");
  RigOptions options;
  options.slow_copies = 1e-3;
  Rig rig(c.config, c.choices, options);
  rig.step(0);
  Trace trace;
  rig.step(1, 1, &trace);
  const Plan& plan = rig.engine->plan(Purpose::train);
  EXPECT_EQ(trace.spans.size(), plan.body.instructions.size());
  for (const TraceSpan& span : trace.spans) {
    EXPECT_GT(span.begin, -1) << span.name;  // counted from the beginning of the body
    EXPECT_GE(span.end, span.begin) << span.name;
  }
  EXPECT_GT(trace.busy(StreamId::compute), 0);
  EXPECT_GT(trace.overlap(StreamId::compute, StreamId::fetch), 0);
  EXPECT_NE(trace.to_json().find("\"forward block 3 micro-batch 1\""), std::string::npos);
}

TEST(Graphs, WorkIsEnqueuedOnceCapturedOnceAndThenLaunched) {
  const auto device = make_cpu_device({.threads = 1});
  const auto stream = device->make_stream("compute");
  int enqueued = 0;
  std::array<int, 2> ran{};
  {
    InstructionGraphs graphs(*stream, 2);
    for (int round = 0; round < 5; ++round)
      for (std::size_t n = 0; n < 2; ++n)
        graphs.run(n, [&, n] {
          ++enqueued;
          cpu_stream(*stream).enqueue([&, n] { ++ran[n]; });
        });
  }
  EXPECT_EQ(enqueued, 4);
  EXPECT_EQ(ran, (std::array{5, 5}));
}

/// The first run and the capture may each fail; the next run begins where that one was.
TEST(Graphs, AFailureIsNoRun) {
  const auto device = make_cpu_device({.threads = 1});
  const auto stream = device->make_stream("compute");
  InstructionGraphs graphs(*stream, 1);
  int ran = 0;
  bool fails = true;
  const auto work = [&] {
    if (fails) throw Error("no");
    cpu_stream(*stream).enqueue([&] { ++ran; });
  };
  for (int round = 1; round <= 3; ++round) {
    if (round < 3) {
      fails = true;
      EXPECT_THROW(graphs.run(0, work), Error);
    }
    fails = false;
    graphs.run(0, work);
    stream->synchronize();
    EXPECT_EQ(ran, round);
  }
}

/// The CPU device, as if it could only enqueue.
class NoGraphs : public Device {
 public:
  explicit NoGraphs(Device& inner) : inner_(inner), info_(inner.info()) { info_.graphs = false; }
  const DeviceInfo& info() const override { return info_; }
  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return inner_.make_stream(name);
  }
  std::unique_ptr<Event> make_event() override { return inner_.make_event(); }
  std::unique_ptr<TimedEvent> make_timed_event() override { return inner_.make_timed_event(); }
  std::unique_ptr<DeviceMemory> allocate(std::int64_t bytes) override {
    return inner_.allocate(bytes);
  }
  std::unique_ptr<HostRegistration> register_host(void* data, std::int64_t bytes) override {
    return inner_.register_host(data, bytes);
  }
  std::int64_t free_bytes() const override { return inner_.free_bytes(); }
  std::int64_t reserve_bytes() const override { return inner_.reserve_bytes(); }

 private:
  Device& inner_;
  DeviceInfo info_;
};

TEST(Graphs, ADeviceWithoutThemRefusesThePlan) {
  const PlanCase c = case_named("graphs");
  Rig rig(c.config, c.choices);
  NoGraphs device(*rig.device);
  const auto open = [&](const Choices& choices) {
    Engine(device, *rig.ops, rig.model, *rig.store, rig.pool,
           {.train = make_plan(rig.model, choices)});
  };
  try {
    open(c.choices);
    FAIL() << "graphs on a device without";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("graphs=on"), std::string::npos) << error.what();
  }
  Choices without = c.choices;
  without.graphs = false;
  EXPECT_NO_THROW(open(without));
}

TEST(Graphs, EveryVisitOfABlockIsOne) {
  const PlanCase c = case_named("graphs");
  Rig rig(c.config, c.choices);
  const auto& instructions = rig.engine->plan(Purpose::train).body.instructions;
  const auto visits =
      std::ranges::count_if(instructions, [](const Instruction& i) { return runs_as_graph(i.op); });
  EXPECT_GE(visits, 2 * c.config.layers * c.choices.micro_batches);
  rig.step(0);
  EXPECT_EQ(rig.engine->graphs(), 0);
  for (int n = 1; n < 3; ++n) {
    rig.step(n);
    EXPECT_EQ(rig.engine->graphs(), visits);
  }
  Choices without = c.choices;
  without.graphs = false;
  Rig plain(c.config, without);
  for (int n = 0; n < 3; ++n) plain.step(n);
  EXPECT_EQ(plain.engine->graphs(), 0);
}

/// Graphs of a plan stay good while another plan has the device.
TEST(Graphs, OutliveAnEvaluation) {
  const PlanCase c = case_named("graphs");
  const auto run = [&](bool graphs) {
    Choices choices = c.choices;
    choices.graphs = graphs;
    Rig rig(c.config, choices);
    std::vector<float> losses;
    for (int n = 0; n < 4; ++n) {
      rig.step(n);
      const auto evaluated = rig.engine->evaluate(rig.batch(9).inputs);
      losses.insert(losses.end(), evaluated.begin(), evaluated.end());
    }
    Trace trace;
    rig.step(4, 1, &trace);
    EXPECT_EQ(trace.spans.size(), rig.engine->plan(Purpose::train).body.instructions.size());
    rig.engine->flush();
    return std::pair(rig.snapshot(), losses);
  };
  EXPECT_TRUE(run(true) == run(false));
}

TEST(SlotRing, MisuseThrows) {
  SlotRing ring;
  EXPECT_THROW(ring.use(1, 3), LogicError);  // empty
  ring.fetch(1, 3);
  EXPECT_EQ(ring.state(1), SlotState::filling);
  EXPECT_THROW(ring.use(1, 3), LogicError);    // nobody waited for the fetch
  EXPECT_THROW(ring.fetch(1, 4), LogicError);  // filling
  EXPECT_THROW(ring.ready(1, 4), LogicError);  // another unit
  ring.ready(1, 3);
  EXPECT_EQ(ring.state(1), SlotState::ready);
  EXPECT_THROW(ring.release(1, 3), LogicError);  // never used
  ring.use(1, 3);
  EXPECT_EQ(ring.state(1), SlotState::in_use);
  EXPECT_THROW(ring.fetch(1, 4), LogicError);  // in use
  EXPECT_THROW(ring.release(1, 4), LogicError);
  EXPECT_FALSE(ring.all_empty());
  ring.release(1, 3);
  EXPECT_TRUE(ring.all_empty());
  EXPECT_THROW(ring.release(1, 3), LogicError);  // twice
}

TEST(Engine, SlowUpdatesFillNoQueue) {
  const PlanCase c = case_named("rows");
  constexpr Index kSteps = 6;
  const Snapshot expected = Rig(c.config, c.choices).run(kSteps);
  RigOptions options;
  options.slow_updates = 3e-3;  // more than ten times what a unit of this model takes
  Rig rig(c.config, c.choices, options);
  std::vector<std::unique_ptr<CopyingReader>> readers;
  std::vector<double> losses;
  std::vector<double> norms;
  const auto& body = rig.engine->plan(Purpose::train).body.instructions;
  const auto on = [&](StreamId stream) {
    return static_cast<std::size_t>(std::ranges::count(body, stream, &Instruction::stream));
  };
  // Of one step, with a wait each: the next step's come when this one's are done.
  const std::size_t most = 2 * std::max(on(StreamId::update), on(StreamId::snapshot));
  ASSERT_LT(most, body.size());
  for (Index n = 0; n < kSteps; ++n) {
    const StepResult result = rig.step(n);
    losses.push_back(result.loss_sum);
    norms.push_back(result.decision.norm);
    rig.engine->snapshot(*readers.emplace_back(rig.reader(1e-3)));
    EXPECT_LE(rig.engine->most_queued(), most) << n;
  }
  rig.engine->finish_snapshot();
  Snapshot all = rig.snapshot();
  all.losses = losses;
  all.norms = norms;
  EXPECT_TRUE(all == expected);
}

TEST(HostQueue, WaitsForAnotherInItsOwnTime) {
  HostQueue reading;
  HostQueue updating;
  std::atomic<bool> held = true;
  int value = 0;
  int read = -1;
  const HostQueue::Ticket first = reading.enqueue([&] {
    held.wait(true);
    read = value;
  });
  updating.enqueue([&] { reading.wait(first); });
  const HostQueue::Ticket update = updating.enqueue([&] { value = 1; });
  EXPECT_FALSE(updating.done(update));
  EXPECT_EQ(updating.most_queued(), 2U);
  held = false;
  held.notify_all();
  updating.wait(update);
  EXPECT_TRUE(updating.done(update));
  EXPECT_TRUE(reading.done(first));
  EXPECT_EQ(read, 0);
  EXPECT_EQ(value, 1);
}

TEST(HostQueue, AFailureReachesTheOtherQueue) {
  HostQueue updating;
  HostQueue reading;
  int read = 0;
  const HostQueue::Ticket bad = updating.enqueue([] { throw Error("disk on fire"); });
  reading.enqueue([&] { updating.wait(bad); });
  reading.enqueue([&] { ++read; });
  reading.finish();  // throws nothing
  updating.finish();
  EXPECT_EQ(read, 0);
  EXPECT_FALSE(reading.done(1));
  EXPECT_THROW(reading.drain(), Error);
}

TEST(HostQueue, FailuresReachTheWaiter) {
  HostQueue queue;
  int done = 0;
  queue.wait(queue.enqueue([&] { ++done; }));
  EXPECT_EQ(done, 1);
  const HostQueue::Ticket bad = queue.enqueue([] { throw Error("disk on fire"); });
  queue.enqueue([&] { ++done; });
  EXPECT_THROW(queue.wait(bad), Error);
  EXPECT_THROW(queue.drain(), Error);
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace megatrain::testing
