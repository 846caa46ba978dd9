#include "core/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/plan/writers.h"
#include "core/train/data_order.h"
#include "tests/engine/engine_rig.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

/// Sequences that count upwards from a start of their own: learnable in a few steps.
class Counting : public TokenSource {
 public:
  explicit Counting(Index samples) : samples_(samples) {}
  Index samples() const override { return samples_; }
  Index sequence() const override { return 13; }
  void sample(Index index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(index) * 5 + i) % 67);
  }

 private:
  Index samples_;
};

class Recorder : public MetricsSink {
 public:
  void step(const StepMetrics& metrics) override { steps.push_back(metrics); }
  void evaluation(const EvaluationMetrics& metrics) override { evaluations.push_back(metrics); }
  std::vector<StepMetrics> steps;
  std::vector<EvaluationMetrics> evaluations;
};

TrainOptions options(Index steps) {
  TrainOptions o;
  o.steps = steps;
  o.schedule = {ScheduleKind::cosine, 1e-2, 1e-3, 2, steps, 0.2};
  o.evaluate_every = 5;
  return o;
}

const auto kNeverStop = [] { return false; };

TEST(Trainer, LearnsReportsAndEvaluates) {
  const PlanCase c = plan_grid().front();
  Rig rig(c.config, c.choices);
  const Counting data(50);
  const Counting held_out(20);
  Trainer trainer(*rig.engine, rig.model, data, &held_out, options(12));
  Recorder record;
  trainer.run(record, kNeverStop);
  ASSERT_EQ(record.steps.size(), 12u);
  ASSERT_EQ(record.evaluations.size(), 3u);  // steps 5, 10 and the last
  EXPECT_EQ(record.evaluations[0].tokens, 20 * 13);
  EXPECT_NEAR(record.steps.front().loss, std::log(67.0), 0.3);
  EXPECT_LT(record.steps.back().loss, 0.9 * record.steps.front().loss);
  EXPECT_LT(record.evaluations.back().loss, record.evaluations.front().loss);
  EXPECT_EQ(record.steps.back().tokens, 12 * c.choices.step_tokens());
  EXPECT_EQ(trainer.state().applied, 12);
  EXPECT_EQ(trainer.state().samples, 12 * c.choices.step_sequences());
  for (const StepMetrics& m : record.steps) {
    EXPECT_GT(m.grad_norm, 0);
    EXPECT_GT(m.host_bytes, 0);
    EXPECT_EQ(m.device_bytes, rig.engine->device_bytes());
    EXPECT_EQ(m.lr, options(12).schedule.at(m.step - 1));
  }
}

TEST(Trainer, ContinuesBitForBitFromAState) {
  const PlanCase c = plan_grid().front();
  const Counting data(50);
  Recorder record;
  Rig straight(c.config, c.choices);
  Trainer whole(*straight.engine, straight.model, data, nullptr, options(9));
  whole.run(record, kNeverStop);

  Rig interrupted(c.config, c.choices);
  Index count = 0;
  Trainer first(*interrupted.engine, interrupted.model, data, nullptr, options(9));
  first.run(record, [&] { return count++ == 4; });
  ASSERT_EQ(first.state().step, 4);
  Trainer second(*interrupted.engine, interrupted.model, data, nullptr, options(9), first.state());
  second.run(record, kNeverStop);
  EXPECT_TRUE(second.state() == whole.state());
  EXPECT_TRUE(interrupted.snapshot() == straight.snapshot());
}

TEST(Trainer, SamplesFollowTheDataOrder) {
  const PlanCase c = plan_grid().front();
  const Counting data(50);
  const Batch batch = training_batch(c.choices, c.config, data, 3, 40);
  std::vector<std::int32_t> tokens(14);
  data.sample(sample_at(3, 40, 50), tokens);
  for (std::size_t t = 0; t < 13; ++t) EXPECT_EQ(batch.tokens[t], tokens[t]);
}

TEST(Trainer, GivesUpWhenNoStepIsFinite) {
  const PlanCase c = plan_grid().front();
  Rig rig(c.config, c.choices);
  // A weight that makes every gradient overflow.
  const ParamDesc& norm = *rig.model.unit(1).find(ParamRole::input_norm);
  const std::vector<float> huge(static_cast<std::size_t>(norm.elements()), 1e38F);
  rig.store->write_master(1, norm, 0, huge);
  const Counting data(50);
  TrainOptions o = options(50);
  o.most_skips_in_a_row = 3;
  Trainer trainer(*rig.engine, rig.model, data, nullptr, o);
  EXPECT_TRUE(trainer.step().skipped);
  EXPECT_TRUE(trainer.step().skipped);
  EXPECT_EQ(trainer.state().applied, 0);
  EXPECT_THROW(trainer.step(), Error);
}

TEST(Trainer, AnEvaluationThatIsStoppedIsMadeUpForByTheNextRun) {
  const PlanCase c = plan_grid().front();
  const Counting data(50);
  const Counting held_out(20);
  Rig whole(c.config, c.choices);
  Recorder expected;
  Trainer straight(*whole.engine, whole.model, data, &held_out, options(7));
  straight.run(expected, kNeverStop);

  Rig rig(c.config, c.choices);
  Recorder record;
  Trainer first(*rig.engine, rig.model, data, &held_out, options(7));
  first.run(record, [&] { return record.steps.size() == 5; });
  EXPECT_TRUE(record.evaluations.empty());
  EXPECT_TRUE(first.state().evaluation_due);
  Trainer second(*rig.engine, rig.model, data, &held_out, options(7), first.state());
  second.run(record, kNeverStop);
  ASSERT_EQ(record.evaluations.size(), expected.evaluations.size());
  for (std::size_t i = 0; i < record.evaluations.size(); ++i) {
    EXPECT_EQ(record.evaluations[i].step, expected.evaluations[i].step);
    EXPECT_EQ(record.evaluations[i].loss, expected.evaluations[i].loss);
  }
  EXPECT_EQ(second.state(), straight.state());
}

Index entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(Trainer, MemoryFilesAndThreadsStayFlat) {
  const PlanCase c = plan_grid().front();
  Rig rig(c.config, c.choices);
  const Counting data(50);
  Trainer trainer(*rig.engine, rig.model, data, nullptr, options(400));
  for (int i = 0; i < 30; ++i) trainer.step();
  const Index before = resident_bytes();
  const Index files = entries_of("/proc/self/fd");
  const Index threads = entries_of("/proc/self/task");
  for (int i = 0; i < 200; ++i) trainer.step();
  EXPECT_LT(resident_bytes() - before, Index{2} << 20);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
}

}  // namespace
}  // namespace megatrain::testing
