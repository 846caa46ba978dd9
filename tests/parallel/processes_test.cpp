// Ranks as processes that take their place from the environment, without a launcher of ours.

#include <gtest/gtest.h>

#include <csignal>

#include "tests/parallel/meeting.h"
#include "tests/parallel/started.h"

namespace megatrain::parallel {
namespace {

std::vector<Started> start(int count, int world, std::vector<std::string> words) {
  words.insert(words.begin(), rank_program());
  return start_ranks(count, world, words);
}

TEST(ProcessesTest, Meet) {
  for (const int world : {1, 2, 4}) {
    std::vector<Started> ranks = start(world, world, {"meet"});
    for (Started& rank : ranks) EXPECT_EQ(rank.wait(), 0) << rank.output();
    EXPECT_TRUE(says(ranks.back().output(), "from torchrun"));
  }
}

TEST(ProcessesTest, OneTooFew) {
  std::vector<Started> ranks = start(3, 4, {"meet", "join=1000"});
  for (Started& rank : ranks) {
    EXPECT_NE(rank.wait(), 0);
    EXPECT_TRUE(says(rank.output(), "missing: rank 3"));
  }
}

TEST(ProcessesTest, AnotherConfiguration) {
  const std::uint16_t port = free_port();
  Started first({rank_program(), "meet", "join=2000"}, torchrun(0, 2, port));
  Started second({rank_program(), "meet", "configuration=1"}, torchrun(1, 2, port));
  EXPECT_EQ(second.wait(), 2);
  EXPECT_TRUE(says(second.output(), "its configuration has hash"));
  EXPECT_EQ(first.wait(), 2);
  EXPECT_TRUE(says(first.output(), "a connection was refused: rank 1"));
  EXPECT_TRUE(says(first.output(), "missing: rank 1 (it was refused"));
}

TEST(ProcessesTest, AKilledRankIsNamedToAll) {
  std::vector<Started> ranks = start(4, 4, {"wait"});
  for (const Started& rank : ranks) ASSERT_TRUE(rank.says("ready"));
  ranks[2].signal(SIGKILL);
  ranks[2].wait();
  for (const std::size_t other : {0, 1, 3}) {
    EXPECT_EQ(ranks[other].wait(), 3);
    EXPECT_TRUE(says(ranks[other].output(), "rank 2"));
  }
}

TEST(ProcessesTest, TheRankThatServesIsNamedToo) {
  std::vector<Started> ranks = start(3, 3, {"wait"});
  for (const Started& rank : ranks) ASSERT_TRUE(rank.says("ready"));
  ranks[0].signal(SIGKILL);
  for (const std::size_t other : {1, 2}) {
    EXPECT_EQ(ranks[other].wait(), 3);
    EXPECT_TRUE(says(ranks[other].output(), "rank 0"));
  }
}

TEST(ProcessesTest, AStoppedRankIsNamedToAll) {
  std::vector<Started> ranks = start(3, 3, {"wait", "silence=600"});
  for (const Started& rank : ranks) ASSERT_TRUE(rank.says("ready"));
  ranks[1].signal(SIGSTOP);
  for (const std::size_t other : {0, 2}) {
    EXPECT_EQ(ranks[other].wait(), 3);
    EXPECT_TRUE(says(ranks[other].output(), "nothing was heard"));
    EXPECT_TRUE(says(ranks[other].output(), "rank 1"));
  }
}

TEST(ProcessesTest, AHungRankIsNamedWithItsWork) {
  std::vector<Started> ranks = start(3, 3, {"stuck"});
  for (const std::size_t other : {0, 2}) {
    EXPECT_EQ(ranks[other].wait(), 3);
    EXPECT_TRUE(says(ranks[other].output(), "rank 1"));
    EXPECT_TRUE(says(ranks[other].output(), "step 5, unit 2"));
  }
}

}  // namespace
}  // namespace megatrain::parallel
