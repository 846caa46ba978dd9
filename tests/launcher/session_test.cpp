// Pieces of a run that need no run.

#include <algorithm>
#include <csignal>

#include "launcher/console.h"
#include "launcher/run_folder.h"
#include "launcher/session/failures.h"
#include "launcher/session/measure/peak.h"
#include "launcher/signals.h"
#include "tests/launcher/run_test.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;

/// The steps that get a line when each takes `seconds`; the run ends after `steps` of `planned`.
std::vector<std::string> lines_of_steps(Index steps, Index planned, double seconds,
                                        bool every_step) {
  ::testing::internal::CaptureStdout();
  {
    Console console;
    StepConsole step_console(console, planned, 0, every_step);
    for (Index step = 1; step <= steps; ++step)
      step_console.step({.step = step, .seconds = seconds, .tokens_per_second = 1});
    step_console.finish();
  }
  std::vector<std::string> lines = lines_of(::testing::internal::GetCapturedStdout());
  for (std::string& line : lines) line.resize(line.find('/'));
  return lines;
}

/// What starts ranks asks the others to end when one has failed. That is no request to save.
TEST(StopSignals, AskForNothingWhenTheRunIsOver) {
  for (const bool over : {false, true}) {
    StopSignals signals;
    signals.training_begins();
    if (over) signals.run_is_over();
    ::testing::internal::CaptureStderr();
    std::raise(SIGTERM);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("then saving") == std::string::npos, over) << said;
    EXPECT_EQ(said.find("a rank has failed") != std::string::npos, over) << said;
    EXPECT_EQ(signals.stop_requested(), !over);
    EXPECT_EQ(signals.stop_requested(SIGTERM), !over);
    EXPECT_EQ(signals.requeue_requested(), !over);
  }
}

TEST(StopSignals, AreAllHeardWhateverTheirOrder) {
  for (const auto& [first, second] : {std::pair(SIGINT, SIGTERM), std::pair(SIGUSR1, SIGHUP)}) {
    StopSignals signals;
    signals.training_begins();
    ::testing::internal::CaptureStderr();
    std::raise(first);
    std::raise(second);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("then saving"), said.rfind("then saving")) << said;
    EXPECT_TRUE(signals.stop_requested(first));
    EXPECT_TRUE(signals.stop_requested(second));
    EXPECT_TRUE(signals.requeue_requested());
  }
}

TEST(StepConsole, ShowsTheFirstTheLastAndAboutOneALineASecond) {
  EXPECT_EQ(lines_of_steps(10, 10, 0.25, false),
            (std::vector<std::string>{"step  1", "step  5", "step  9", "step 10"}));
  EXPECT_EQ(lines_of_steps(3, 3, 5, false).size(), 3u) << "slow steps have a line each";
  EXPECT_EQ(lines_of_steps(700, 1000, 1e-4, false),
            (std::vector<std::string>{"step    1", "step  700"}))
      << "a run that ends early";
  EXPECT_EQ(lines_of_steps(50, 50, 1e-4, true).size(), 50u);
}

TEST(StepConsole, NeverHidesASkippedStep) {
  ::testing::internal::CaptureStdout();
  {
    Console console;
    StepConsole step_console(console, 9, 0, false);
    for (Index step = 1; step <= 9; ++step)
      step_console.step({.step = step, .skipped = step == 4, .seconds = 1e-4});
  }
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("SKIPPED"), std::string::npos) << text;
  EXPECT_EQ(lines_of(text).size(), 3u) << text;
}

TEST(Failures, AreToldFromTheFirstToTheLastAndTheFirstSaysOfWhatKind) {
  EXPECT_NO_THROW(Failures().rethrow());
  const auto message = [](const std::vector<std::function<void()>>& acts) -> std::string {
    Failures failures;
    failures.add(nullptr);
    for (const auto& act : acts) failures.collect(act);
    try {
      failures.rethrow();
    } catch (const UserError& error) {
      return std::string("user: ") + error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto fails = [] { throw Error("the disk fails"); };
  const auto refuses = [] { throw UserError("the disk is full"); };
  EXPECT_EQ(message({[] {}}), "");
  EXPECT_EQ(message({[] {}, refuses}), "user: the disk is full");
  EXPECT_EQ(message({fails, refuses}), "the disk fails\nthen: the disk is full");
  EXPECT_EQ(message({refuses, fails}), "user: the disk is full\nthen: the disk fails");
}

using RunFolders = RunTest;

TEST_F(RunFolders, ARunThatDoesNotFitTheDiskLeavesTheEarlierOneWhole) {
  const RunFolder folder{path("run")};
  fs::create_directories(folder.model());
  for (const fs::path& file :
       {folder.metrics(), folder.config(), folder.key(), folder.model() / "model.safetensors"})
    write_text(file, "an earlier run");
  EXPECT_THROW(clear_run_folder(folder, Index{1} << 60), UserError);
  for (const fs::path& file :
       {folder.metrics(), folder.config(), folder.key(), folder.model() / "model.safetensors"})
    EXPECT_EQ(read_file(file), "an earlier run") << file;
  clear_run_folder(folder, 1);
  EXPECT_TRUE(fs::is_empty(folder.path));
}

TEST_F(RunFolders, TheDiskOfAFolderThatIsNotThereYetIsAskedAndNothingIsMade) {
  const RunFolder folder{path("new/deeper/run")};
  EXPECT_THROW(require_disk_space(folder, Index{1} << 60), UserError);
  EXPECT_NO_THROW(require_disk_space(folder, 1));
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(RunFolders, AreHeldByOneAndLeaveNothingBehindThatHoldsNothing) {
  fs::create_directories(path("there"));
  const RunFolder folder{path("there/deeper/run/")};
  {
    FolderHold first(folder);
    FolderHold second(folder);
    EXPECT_TRUE(fs::is_empty(path("there"))) << "to look changes nothing";
    EXPECT_TRUE(first.make());
    EXPECT_FALSE(first.make());
    EXPECT_TRUE(fs::is_directory(folder.path));
    EXPECT_THROW(second.make(), UserError);
    EXPECT_THROW(FolderHold{folder}, UserError);
  }
  EXPECT_TRUE(fs::is_empty(path("there")));
  {
    FolderHold hold(folder);
    hold.make();
    write_text(folder.config(), "");
  }
  EXPECT_TRUE(fs::exists(folder.config()));
  EXPECT_NO_THROW(FolderHold{folder}) << "it ends with its holder";
  fs::create_symlink(path("nowhere"), path("link"));
  EXPECT_THROW(FolderHold{RunFolder{path("link")}}.make(), UserError);
}

TEST(Peak, IsMeasuredWithProductsThatTwoCoresDoInMilliseconds) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    const ProductShape shape = peak_shape(DeviceKind::cpu, config);
    EXPECT_LE(shape.flops(), 1e9) << name;
    EXPECT_GE(std::min({shape.tokens, shape.hidden, shape.inner}),
              std::min<Index>(config.hidden, 256))
        << name << ": too thin to be a peak";
    EXPECT_EQ(peak_shape(DeviceKind::cuda, config).hidden, config.hidden);
  }
}

}  // namespace
}  // namespace megatrain::launcher
