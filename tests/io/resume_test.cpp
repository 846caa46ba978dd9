/// @file
/// Training that is saved, ended and resumed gives the bits of training that never stopped.

#include <algorithm>

#include "core/train/trainer.h"
#include "io/checkpoint/state_load.h"
#include "io/checkpoint/training_record.h"
#include "tests/engine/engine_rig.h"
#include "tests/io/checkpoint_rig.h"
#include "tests/io/io_test_support.h"
#include "tests/plan/plan_grid.h"

namespace megatrain::testing {
namespace {

namespace fs = std::filesystem;

/// Sequences that count upwards; few of them, so that epochs end.
class Counting : public TokenSource {
 public:
  [[nodiscard]] Index samples() const override { return 11; }
  [[nodiscard]] Index sequence() const override { return 13; }
  void sample(Index index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(index) * 5 + i) % 59);
  }
};

class Recorder : public MetricsSink {
 public:
  void step(const StepMetrics& m) override {
    values.insert(values.end(), {static_cast<double>(m.step), static_cast<double>(m.tokens), m.loss,
                                 m.grad_norm, m.lr, m.skipped ? 1.0 : 0.0});
    skipped += m.skipped ? 1 : 0;
  }
  void evaluation(const EvaluationMetrics& m) override { values.push_back(m.loss); }
  std::vector<double> values;
  Index skipped = 0;
};

/// Saves the state after some steps, each into a folder of its own.
class SaveAt : public Saver {
 public:
  SaveAt(const HostStore& store, fs::path folder, std::vector<Index> steps, Index bytes_per_second)
      : store_(store),
        folder_(std::move(folder)),
        steps_(std::move(steps)),
        bytes_per_second_(bytes_per_second) {}

  StateReader* begin(const TrainState& state, bool /*ending*/) override {
    if (std::ranges::find(steps_, state.step) == steps_.end()) return nullptr;
    io::SaveOptions options{.folder = folder_ / std::to_string(state.step),
                            .step = state.step,
                            .files = {{std::string(io::kTrainingName), io::to_json({state})}},
                            .shard_bytes = 50'000,
                            .bytes_per_second = bytes_per_second_};
    saves_.push_back(std::make_unique<io::BackgroundSave>(store_, options, blocks_, 2));
    return saves_.back().get();
  }
  void wait() {
    for (const auto& save : saves_) save->wait();
  }

 private:
  const HostStore& store_;
  fs::path folder_;
  std::vector<Index> steps_;
  Index bytes_per_second_;
  io::BlockPool blocks_{2};
  std::vector<std::unique_ptr<io::BackgroundSave>> saves_;
};

struct Case {
  const char* name;
  const char* plan;
  Index saved_at;
  Index evaluate_every = 0;
  double lr = 1e-2;
  Index bytes_per_second = 0;
};

class Resume : public ::testing::TestWithParam<Case> {};

TrainOptions options(const Case& c, Index steps) {
  TrainOptions o;
  o.steps = steps;
  o.schedule = {ScheduleKind::cosine, c.lr, 1e-3, 4, 12, 0.2};
  o.evaluate_every = c.evaluate_every;
  o.seed = 5;
  return o;
}

std::unique_ptr<Rig> make_rig(const Case& c) {
  const PlanCase plan = case_named(c.plan);
  return std::make_unique<Rig>(plan.config, plan.choices);
}

const auto kNeverStop = [] { return false; };

TEST_P(Resume, GivesTheBitsOfARunThatNeverStopped) {
  const Case& c = GetParam();
  const TemporaryFolder folder;
  constexpr Index kSteps = 9;
  const Counting data;
  const Counting held_out;

  const auto straight = make_rig(c);
  Recorder expected;
  Trainer trainer(*straight->engine, straight->model, data, &held_out, options(c, kSteps));
  trainer.run(expected, kNeverStop);
  const Snapshot end = straight->snapshot();
  EXPECT_EQ(expected.skipped > 0, c.lr > 1) << "after such an update no gradient is finite";

  // Saving while training goes on changes nothing.
  const auto saved = make_rig(c);
  SaveAt saver(*saved->store, folder.path(), {c.saved_at, c.saved_at + 1}, c.bytes_per_second);
  Recorder while_saving;
  Trainer saving(*saved->engine, saved->model, data, &held_out, options(c, kSteps));
  saving.run(while_saving, kNeverStop, {}, &saver);
  saver.wait();
  EXPECT_EQ(while_saving.values, expected.values);
  EXPECT_EQ(saved->snapshot(), end);

  for (const Index at : {c.saved_at, c.saved_at + 1}) {
    const io::Checkpoint checkpoint(folder / std::to_string(at));
    const TrainState state =
        io::parse_training_record(checkpoint.read_file(io::kTrainingName), "training.json").state;
    EXPECT_EQ(state.step, at);
    const auto resumed = make_rig(c);
    ThreadPool pool(2);
    io::load_state(checkpoint, *resumed->store, io::LoadParts::all, pool);
    Recorder rest;
    Trainer going_on(*resumed->engine, resumed->model, data, &held_out, options(c, kSteps), state);
    going_on.run(rest, kNeverStop);
    ASSERT_LE(rest.values.size(), expected.values.size());
    EXPECT_TRUE(std::equal(rest.values.rbegin(), rest.values.rend(), expected.values.rbegin()));
    EXPECT_EQ(resumed->snapshot(), end);
    EXPECT_EQ(going_on.state(), trainer.state());
  }
}

// Four steps warm up; eleven samples make an epoch.
INSTANTIATE_TEST_SUITE_P(
    Cases, Resume,
    ::testing::Values(
        Case{"mid_warm_up", "plain", 2}, Case{"across_an_epoch_end", "plain", 4},
        Case{"evaluated_at_the_save", "plain", 3, 3}, Case{"tied_weights", "rows_tied_waves", 3},
        Case{"segments_and_spill", "segments_spill_tied", 5},
        Case{"split_masters", "split_masters", 4}, Case{"bf16_moments", "bf16_moments", 4},
        Case{"bf16_masters", "bf16_masters", 4},
        Case{"bf16_states_on_the_device", "bf16_states_device_states", 3, 2},
        Case{"bf16_moments_on_the_device", "bf16_moments_device_states_split_masters", 3, 2},
        Case{"skipped_steps", "plain", 4, 0, true},
        Case{"a_slow_disk", "plain", 3, 2, false, 1'000'000}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace megatrain::testing
