// Ranks as processes: the same bits as threads, and what the others learn when one of them dies,
// hangs, gives up or never comes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "parallel/conformance/conformance.h"
#include "tests/parallel/blamed.h"
#include "tests/parallel/gloo_rounds.h"
#include "tests/temporary_folder.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

using testing::expect_blamed;
using testing::RankEnd;

class GlooProcesses : public ::testing::Test {
 protected:
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }

  /// Runs `size` processes; `victim` does as the scenario says.
  std::vector<RankEnd> run(int size, const std::string& scenario, int victim,
                           std::chrono::milliseconds timeout) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank)
      children.push_back(
          start({GLOO_CHILD, folder().string(), std::to_string(rank), std::to_string(size),
                 std::to_string(timeout.count()), scenario, std::to_string(victim)},
                output_of(rank)));
    std::vector<RankEnd> outcomes(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank)
      if (scenario != "stop" || rank != victim) finish(children, rank, outcomes);
    if (scenario == "stop") {
      kill(children[static_cast<std::size_t>(victim)], SIGKILL);
      finish(children, victim, outcomes);
    }
    return outcomes;
  }

 private:
  [[nodiscard]] fs::path output_of(int rank) const {
    return folder_ / ("output " + std::to_string(rank));
  }

  static pid_t start(std::vector<std::string> arguments, const fs::path& output) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, argv.front(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
  }

  void finish(const std::vector<pid_t>& children, int rank, std::vector<RankEnd>& outcomes) const {
    RankEnd& outcome = outcomes[static_cast<std::size_t>(rank)];
    int status = 0;
    waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    std::ifstream file(output_of(rank));
    outcome.output.assign(std::istreambuf_iterator<char>(file), {});
  }

  TemporaryFolder folder_;
};

TEST_F(GlooProcesses, HaveTheBitsOfThreads) {
  for (int size = 1; size <= 4; ++size) {
    std::vector<std::uint64_t> expected(static_cast<std::size_t>(size));
    conformance::run_ranks(conformance::along(Axis::data, size), [&](conformance::Rank& rank) {
      expected[static_cast<std::size_t>(rank.rank())] =
          testing_rounds(rank.along(Axis::data), rank.stream(), [](int) {});
    });
    const auto outcomes = run(size, "none", -1, 60s);
    for (int rank = 0; rank < size; ++rank) {
      const RankEnd& outcome = outcomes[static_cast<std::size_t>(rank)];
      ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
      EXPECT_EQ(std::stoull(outcome.output, nullptr, 16), expected[static_cast<std::size_t>(rank)])
          << "rank " << rank << " of " << size;
    }
    for (const auto& entry : fs::directory_iterator(folder())) fs::remove(entry);
  }
}

TEST_F(GlooProcesses, LearnWhoWasKilled) {
  const auto outcomes = run(4, "kill", 2, 60s);
  EXPECT_EQ(outcomes[2].exit_code, -1);
  expect_blamed(outcomes, 2, "without a word");
}

TEST_F(GlooProcesses, LearnWhoHangsWhenTheTimeIsOver) {
  const auto outcomes = run(3, "stop", 1, 2s);
  expect_blamed(outcomes, 1, "no sign of rank 1");
}

TEST_F(GlooProcesses, LearnWhyOneGaveUp) {
  const auto outcomes = run(3, "abort", 0, 60s);
  expect_blamed(outcomes, 0, "the data ended");
  EXPECT_EQ(outcomes[0].exit_code, 3) << outcomes[0].output;
}

TEST_F(GlooProcesses, LearnWhoNeverCame) {
  const auto outcomes = run(3, "absent", 2, 500ms);
  expect_blamed(outcomes, 2, "rank 2 did not come");
}

}  // namespace
}  // namespace megatrain
