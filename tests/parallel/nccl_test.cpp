// Ranks as processes with a GPU each: what collectives come to, and what the others learn when a
// rank dies, hangs, gives up or never comes.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "tests/parallel/blamed.h"
#include "tests/parallel/program_environment.h"
#include "tests/parallel/started.h"
#include "tests/temporary_folder.h"

namespace megatrain {
namespace {

using testing::expect_blamed;
using testing::RankEnd;

class NcclProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    // More ranks than this show nothing new.
    size_ = std::min(cuda_device_count(), 4);
    if (size_ < 2) GTEST_SKIP() << "fewer than two GPUs";
  }

  /// One process a GPU; `victim` does as the scenario says.
  std::vector<RankEnd> run(const std::string& scenario, int victim, int timeout_ms) {
    std::vector<parallel::Started> children;
    for (int rank = 0; rank < size_; ++rank)
      children.emplace_back(
          std::vector<std::string>{NCCL_CHILD, folder_.path().string(), std::to_string(rank),
                                   std::to_string(size_), std::to_string(timeout_ms), scenario,
                                   std::to_string(victim)},
          parallel::program_environment());
    std::vector<RankEnd> outcomes(children.size());
    const auto finish = [&](std::size_t rank) {
      outcomes[rank].exit_code = children[rank].wait();
      outcomes[rank].output = children[rank].output();
    };
    for (std::size_t rank = 0; rank < children.size(); ++rank)
      if (static_cast<int>(rank) != victim) finish(rank);
    if (victim >= 0) {
      if (scenario.starts_with("stop")) children[static_cast<std::size_t>(victim)].signal(SIGKILL);
      finish(static_cast<std::size_t>(victim));
    }
    return outcomes;
  }

  int size_ = 0;
  TemporaryFolder folder_;
};

TEST_F(NcclProcesses, GatherExactlyAndSumWithinBoundsToTheSameBits) {
  const auto outcomes = run("right", -1, 60'000);
  for (const RankEnd& outcome : outcomes) {
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("bits "), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.substr(outcome.output.find("bits ")),
              outcomes[0].output.substr(outcomes[0].output.find("bits ")));
  }
}

TEST_F(NcclProcesses, LearnWhoWasKilled) {
  const auto outcomes = run("kill", 1, 5'000);
  EXPECT_EQ(outcomes[1].exit_code, 128 + SIGKILL);
  expect_blamed(outcomes, 1, "no sign of rank 1");
  expect_blamed(outcomes, 1, "all_reduce 8 (100000 fp32 elements) of 'data'");
}

TEST_F(NcclProcesses, LearnWhoWasKilledInAnAgreement) {
  const auto outcomes = run("kill in an agreement", 0, 5'000);
  expect_blamed(outcomes, 0, "no sign of rank 0");
  expect_blamed(outcomes, 0, "max 8 (1 values) of 'data'");
}

TEST_F(NcclProcesses, LearnWhoHangsWhenTheTimeIsOver) {
  expect_blamed(run("stop", 1, 5'000), 1, "no sign of rank 1");
}

TEST_F(NcclProcesses, WakeWhenOneGivesUp) {
  const auto outcomes = run("abort", 0, 600'000);
  expect_blamed(outcomes, 0, "the data ended");
  EXPECT_EQ(outcomes[0].exit_code, 3) << outcomes[0].output;
}

TEST_F(NcclProcesses, WakeFromAnAgreementWhenOneGivesUp) {
  expect_blamed(run("abort in an agreement", 1, 600'000), 1, "the data ended");
}

TEST_F(NcclProcesses, LearnWhoNeverCame) {
  expect_blamed(run("absent", 1, 2'000), 1, "rank 1 did not come");
}

}  // namespace
}  // namespace megatrain
