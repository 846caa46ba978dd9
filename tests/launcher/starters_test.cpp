/// @file
/// `megatrain train` as ranks that torchrun, srun and mpirun start, where these are installed.

#include <csignal>

#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "tests/launcher/ranks.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;
using parallel::Started;

struct Starter {
  std::string name;
  /// Starts two ranks of what follows.
  std::vector<std::string> command;
  /// Lets them save and end, when the starter gets it.
  int stop;
  /// The starter's exit code after that, and when a rank was killed.
  int stopped, failed;
};

std::ostream& operator<<(std::ostream& stream, const Starter& starter) {
  return stream << starter.name;
}

std::string name_of(const testing::TestParamInfo<Starter>& test) { return test.param.name; }

/// What starters need of the environment beside PATH.
parallel::Environment environment() {
  parallel::Environment variables{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  for (const char* name : {"SLURM_CONF", "HOME"})
    if (const char* value = std::getenv(name)) variables.emplace(name, value);
  return variables;
}

class Starters : public Ranks, public testing::WithParamInterface<Starter> {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    // There, working, and on this machine.
    const Starter& starter = GetParam();
    Started probe({"sh", "-c", "command -v " + starter.command.front()}, environment());
    if (probe.wait() != 0) GTEST_SKIP() << starter.command.front() << " is not on PATH";
    Started works(by(starter, {"test", "-e", path("text.txt")}), environment());
    if (works.wait() != 0) GTEST_SKIP() << starter.name << " starts nothing: " << works.output();
  }
  [[nodiscard]] static std::vector<std::string> by(const Starter& starter,
                                                   std::vector<std::string> program) {
    std::vector<std::string> command = starter.command;
    if (starter.command.front() == "torchrun") {
      const std::string port = std::to_string(parallel::free_port());
      for (std::string& word : command)
        if (const std::size_t at = word.find("PORT"); at != std::string::npos)
          word.replace(at, 4, port);
    }
    append(command, std::move(program));
    return command;
  }
  [[nodiscard]] static Started start(std::vector<std::string> program) {
    return Started(by(GetParam(), std::move(program)), environment());
  }
  /// The rank of that run that was started last; -1: none runs.
  [[nodiscard]] pid_t newest_rank(const std::string& out) const {
    return parallel::newest_process(parallel::megatrain_program() + " train ", path(out) + " ");
  }
  void kill_rank(const std::string& out) const {
    const pid_t rank = newest_rank(out);
    ASSERT_GT(rank, 0);
    ::kill(rank, SIGKILL);
  }
  [[nodiscard]] bool any_rank(const std::string& out) const { return newest_rank(out) > 0; }
};

TEST_P(Starters, TrainWhatLaunchDoes) {
  expect_done(launch(2, run("launch")));
  Started program = start(run("starter"));
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_TRUE(model("starter") == model("launch"));
  EXPECT_EQ(program.output().find('\r'), std::string::npos) << "a bar, though this is no terminal";
}

TEST_P(Starters, AKilledRankEndsAll) {
  Started program = start(long_run("killed"));
  ASSERT_TRUE(program.says("loss", 2));
  kill_rank("killed");
  EXPECT_EQ(program.wait(), GetParam().failed) << program.output();
  EXPECT_TRUE(program.says("was lost"));
  EXPECT_FALSE(any_rank("killed"));
}

TEST_P(Starters, ASignalLetsAllSaveAndGoOnLater) {
  for (const int round : {0, 1}) {
    Started program = start(long_run("stopped", {"--save-every", "1000000"}));
    ASSERT_TRUE(program.says("loss", 2));
    if (round > 0) {
      EXPECT_TRUE(program.says("going on from step"));
    }
    program.signal(GetParam().stop);
    EXPECT_EQ(program.wait(), GetParam().stopped) << program.output();
    EXPECT_TRUE(program.says("stopped after"));
    EXPECT_TRUE(fs::exists(path("stopped/checkpoints/latest")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Starters,
    testing::Values(
        Starter{"torchrun",
                {"torchrun", "--master-port", "PORT", "--nproc-per-node", "2", "--no-python"},
                SIGTERM,
                1,
                1},
        Starter{"torchrun_c10d",
                {"torchrun", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:PORT",
                 "--nproc-per-node", "2", "--no-python"},
                SIGTERM,
                1,
                1},
        // SIGTERM to these ends the ranks at once, or a second later.
        Starter{"srun", {"srun", "--immediate=30", "-N", "1", "-n", "2"}, SIGUSR1, 75, 137},
        Starter{"mpirun", {"mpirun", "-n", "2"}, SIGUSR1, 75, 137}),
    name_of);

/// torchrun's own restarts go on from the latest checkpoint.
class Torchrun : public Starters {};

TEST_P(Torchrun, RestartsFromTheLatestCheckpoint) {
  const std::vector<std::string> options = {"--steps", "60",          "--save-every",
                                            "10",      "--val-every", "0"};
  expect_done(launch(2, run("straight", options)));
  Started program = start(run("restarted", options));
  ASSERT_TRUE(program.says("checkpoint step_00000010"));
  kill_rank("restarted");
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_TRUE(program.says("going on from step"));
  EXPECT_TRUE(model("restarted") == model("straight"));
}

INSTANTIATE_TEST_SUITE_P(All, Torchrun,
                         testing::Values(Starter{
                             "torchrun",
                             {"torchrun", "--master-port", "PORT", "--max-restarts", "1",
                              "--nproc-per-node", "2", "--no-python"},
                             SIGTERM,
                             1,
                             1}),
                         name_of);

}  // namespace
}  // namespace megatrain::launcher
