// Worlds of several processes: they communicate in lines, and when one rank dies, hangs or gives
// up, all others end with its name, wherever they wait.

#include <gtest/gtest.h>

#include <csignal>

#include "tests/parallel/meeting.h"
#include "tests/parallel/started.h"
#include "tests/parallel/two_hosts.h"

namespace megatrain::parallel {
namespace {

std::vector<Started> start(int count, int world, std::vector<std::string> words) {
  words.insert(words.begin(), WORLD_PROGRAM);
  return start_ranks(count, world, words);
}

/// Every rank but `victim` ended in a collective, by what the rendezvous said of the victim.
void expect_named(std::vector<Started>& ranks, std::size_t victim, const std::string& words) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks[rank].wait(), 3) << "rank " << rank << ": " << ranks[rank].output();
    const std::string output = ranks[rank].output();
    EXPECT_TRUE(says(output, "all_reduce"));
    EXPECT_TRUE(says(output, "rank " + std::to_string(victim)));
    EXPECT_TRUE(says(output, words));
    EXPECT_TRUE(says(output, "idle: barrier"));
    EXPECT_TRUE(says(output, "blames " + std::to_string(victim) + "\n"));
  }
}

/// When all have said that they are ready.
void signal_one(std::vector<Started>& ranks, std::size_t victim, int signal) {
  for (const Started& rank : ranks) ASSERT_TRUE(rank.says("ready"));
  ranks[victim].signal(signal);
}

TEST(WorldProcessesTest, CommunicateInLines) {
  for (int world = 1; world <= 4; ++world) {
    std::vector<Started> ranks = start(world, world, {"collectives"});
    for (Started& rank : ranks) {
      EXPECT_EQ(rank.wait(), 0) << rank.output();
      EXPECT_TRUE(says(rank.output(), world == 4 ? "6 lines" : "4 lines"));
    }
  }
}

/// Rank 0 goes to its own rendezvous by loopback, where the other host cannot follow.
TEST(WorldProcessesTest, CommunicateBetweenHosts) {
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "no network namespaces here (they need root)";
  std::vector<Started> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Environment environment = torchrun(rank, 4, 7000);
    environment["LOCAL_RANK"] = std::to_string(rank % 2);
    environment["LOCAL_WORLD_SIZE"] = "2";
    environment["GROUP_RANK"] = std::to_string(rank / 2);
    environment["GROUP_WORLD_SIZE"] = "2";
    environment["MASTER_ADDR"] = TwoHosts::kAddress;
    ranks.emplace_back(hosts.on(rank / 2, {WORLD_PROGRAM, "collectives"}), environment);
  }
  for (Started& rank : ranks) {
    EXPECT_EQ(rank.wait(), 0) << rank.output();
    EXPECT_TRUE(says(rank.output(), "6 lines"));
  }
}

TEST(WorldProcessesTest, ARankThatIsKilledInACollective) {
  std::vector<Started> ranks = start(4, 4, {"endless"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 2, SIGKILL));
  expect_named(ranks, 2, "rank 2 (process");
}

TEST(WorldProcessesTest, TheRankThatServesIsKilled) {
  std::vector<Started> ranks = start(3, 3, {"endless"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 0, SIGKILL));
  expect_named(ranks, 0, "rank 0 has ended");
}

TEST(WorldProcessesTest, ARankThatIsStopped) {
  std::vector<Started> ranks = start(3, 3, {"endless", "silence=1000"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 1, SIGSTOP));
  expect_named(ranks, 1, "nothing was heard of it");
}

TEST(WorldProcessesTest, TheRankThatServesIsStopped) {
  std::vector<Started> ranks = start(3, 3, {"endless", "silence=1000"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 0, SIGSTOP));
  expect_named(ranks, 0, "nothing was heard of the rendezvous");
}

TEST(WorldProcessesTest, ARankThatHangsUnderItsWatchdog) {
  std::vector<Started> ranks = start(3, 3, {"endless", "victim=1", "hangs=300"});
  expect_named(ranks, 1, "it makes no progress; for 0.3 s it has been at: step 7, unit 2");
}

/// The others are late first, and wait in a collective to which it has not come.
TEST(WorldProcessesTest, ARankThatHangsUnderTheWatchdogOfOthers) {
  std::vector<Started> ranks = start(3, 3, {"endless", "victim=1", "hangs=60000", "watch=3000"});
  expect_named(ranks, 1, "failed: it makes no progress at: step 7, unit 2; rank ");
}

TEST(WorldProcessesTest, ARankThatIsStoppedUnderTheWatchdogOfOthers) {
  std::vector<Started> ranks = start(3, 3, {"endless", "watch=3000"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 1, SIGSTOP));
  expect_named(ranks, 1, "was lost: it does not answer; rank ");
}

TEST(WorldProcessesTest, ARankThatThrows) {
  std::vector<Started> ranks = start(4, 4, {"endless", "victim=3", "throws=1"});
  expect_named(ranks, 3, "failed: the data ended");
  EXPECT_EQ(ranks[3].wait(), 1);
}

TEST(WorldProcessesTest, AnExceptionThatNobodyReports) {
  std::vector<Started> ranks = start(3, 3, {"endless", "victim=0", "unwinds=1"});
  expect_named(ranks, 0, "failed: it ended by an exception");
  EXPECT_EQ(ranks[0].wait(), 1);
}

/// Whom a communicator does not connect may end it all the same.
TEST(WorldProcessesTest, ARankOfAnotherLine) {
  std::vector<Started> ranks = start(4, 4, {"lines"});
  ASSERT_NO_FATAL_FAILURE(signal_one(ranks, 3, SIGKILL));
  for (const std::size_t other : {0, 1, 2}) {
    EXPECT_EQ(ranks[other].wait(), 3) << ranks[other].output();
    EXPECT_TRUE(says(ranks[other].output(), "rank 3 (process"));
  }
  EXPECT_TRUE(says(ranks[0].output(), "blames \n"));
  EXPECT_TRUE(says(ranks[2].output(), "blames 1\n"));
}

TEST(WorldProcessesTest, ARankThatDiesBeforeItConnects) {
  std::vector<Started> ranks = start(3, 3, {"endless", "victim=1", "late=1"});
  ASSERT_TRUE(ranks[1].says("late"));
  ranks[1].signal(SIGKILL);
  for (const std::size_t other : {0, 2}) {
    EXPECT_EQ(ranks[other].wait(), 3);
    EXPECT_TRUE(says(ranks[other].output(), "rank 1 (process"));
    EXPECT_TRUE(says(ranks[other].output(), "blames 1\n"));
  }
}

TEST(WorldProcessesTest, OneTooFew) {
  std::vector<Started> ranks = start(3, 4, {"collectives", "join=1000"});
  for (Started& rank : ranks) {
    EXPECT_EQ(rank.wait(), 2);
    EXPECT_TRUE(says(rank.output(), "missing: rank 3"));
  }
}

TEST(WorldProcessesTest, AnotherConfiguration) {
  const std::uint16_t port = free_port();
  Started first({WORLD_PROGRAM, "collectives", "join=2000"}, torchrun(0, 2, port));
  Started second({WORLD_PROGRAM, "collectives", "configuration=1"}, torchrun(1, 2, port));
  EXPECT_EQ(second.wait(), 2);
  EXPECT_TRUE(says(second.output(), "its configuration has hash"));
  EXPECT_EQ(first.wait(), 2);
  EXPECT_TRUE(says(first.output(), "missing: rank 1 (it was refused"));
}

}  // namespace
}  // namespace megatrain::parallel
