// `megatrain launch` with shell scripts and small programs as ranks.

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/parallel/meeting.h"
#include "tests/parallel/started.h"
#include "tests/parallel/two_hosts.h"

namespace megatrain::parallel {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> launch(std::vector<std::string> words) {
  words.insert(words.begin(), {megatrain_program(), "launch"});
  return words;
}

/// A launch of `count` ranks that run a shell script.
std::vector<std::string> script(int count, const std::string& text,
                                std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"--nproc-per-node", std::to_string(count)});
  options.insert(options.end(), {"sh", "-c", text});
  return launch(std::move(options));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("launch-") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~LaunchTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

/// The number after `words` in a text.
pid_t number_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + words.size()));
}

TEST_F(LaunchTest, PrefixesLogsAndEnvironment) {
  Started run(script(3,
                     "echo out of $MEGATRAIN_RANK of $MEGATRAIN_WORLD_SIZE; "
                     "echo err of $MEGATRAIN_LOCAL_RANK >&2; printf 'no end'; "
                     "cat",
                     {"--log-dir", folder_ / "logs"}));
  EXPECT_EQ(run.wait(), 0) << run.output();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string prefix = "[rank" + number + "] ";
    EXPECT_TRUE(says(run.output(), prefix + "out of " + number + " of 3\n"));
    EXPECT_TRUE(says(run.output(), prefix + "err of " + number + "\n"));
    EXPECT_TRUE(says(run.output(), prefix + "no end\n"));
    const std::string log = read_file(folder_ / "logs/generation-0" / ("rank-" + number + ".log"));
    EXPECT_TRUE(says(log, "out of " + number));
    EXPECT_TRUE(says(log, "err of " + number));
    EXPECT_FALSE(says(log, "[rank"));
  }
}

TEST_F(LaunchTest, RanksMeet) {
  for (const char* count : {"1", "4"}) {
    Started run(launch({"--nproc-per-node", count, rank_program(), "meet"}));
    EXPECT_EQ(run.wait(), 0) << run.output();
    EXPECT_TRUE(says(run.output(), "[rank0] rank 0 of " + std::string(count)));
    EXPECT_FALSE(says(run.output(), "launch:"));
  }
}

TEST_F(LaunchTest, ExitCodes) {
  EXPECT_EQ(Started(script(2, "exit 0")).wait(), 0);
  EXPECT_EQ(Started(script(2, "exit 75")).wait(), 75);
  EXPECT_EQ(Started(script(2, "exit $((75 * MEGATRAIN_RANK))")).wait(), 75);
  EXPECT_EQ(Started(script(2, "exit $((7 * MEGATRAIN_RANK))")).wait(), 7);
  EXPECT_EQ(Started(script(1, "kill -SEGV $$")).wait(), 128 + SIGSEGV);
}

TEST_F(LaunchTest, AFailureIsReportedAndEndsTheOthers) {
  Started run(script(3,
                     "if [ $MEGATRAIN_RANK = 1 ]; then for i in $(seq 30); do echo line $i; done; "
                     "exit 9; fi; exec sleep 600"));
  EXPECT_EQ(run.wait(), 9);
  const std::string output = run.output();
  EXPECT_TRUE(says(output, "rank 1 on "));
  EXPECT_TRUE(says(output, "failed: exit code 9; its last lines:\nline 11\nline 12\n"));
}

TEST_F(LaunchTest, ARankKilledBySignalIsReported) {
  Started run(launch({"--nproc-per-node", "3", rank_program(), "wait"}));
  ASSERT_TRUE(run.says("ready", 3));
  ::kill(number_after(run.output(), "[rank2] ready "), SIGKILL);
  EXPECT_EQ(run.wait(), 128 + SIGKILL);
  EXPECT_TRUE(says(run.output(), "rank 2 on "));
  EXPECT_TRUE(says(run.output(), "failed: signal 9"));
}

TEST_F(LaunchTest, AHungRankIsReported) {
  Started run(launch({"--nproc-per-node", "2", "--grace", "1", rank_program(), "stuck"}));
  EXPECT_EQ(run.wait(), 1);  // of the one that hung, not of those that ended because of it
  EXPECT_TRUE(says(run.output(), "failed: it makes no progress"));
  EXPECT_TRUE(says(run.output(), "step 5, unit 2"));
}

/// Whose output is more than launch can show keeps it from nothing.
TEST_F(LaunchTest, ARankThatNeverStopsWritingIsEndedToo) {
  Started run(
      {"/bin/sh", "-c",
       "exec " + megatrain_program() +
           " launch --nproc-per-node 2 sh -c '[ $MEGATRAIN_RANK = 1 ] || exec yes; sleep 1; "
           "exit 7' > /dev/null"});
  EXPECT_EQ(run.wait(), 7);
  EXPECT_TRUE(says(run.output(), "rank 1 on "));
}

/// Whatever it is that lacks one.
TEST_F(LaunchTest, TooFewDescriptorsAreNamed) {
  for (const char* limit : {"18", "19", "20", "21"}) {
    Started run({"/bin/sh", "-c",
                 "ulimit -n " + std::string(limit) + "; exec " + megatrain_program() +
                     " launch --nproc-per-node 8 true"});
    EXPECT_NE(run.wait(), 0);
    EXPECT_TRUE(says(run.output(), "Too many open files"));
  }
}

TEST_F(LaunchTest, WhoIgnoresTheEndIsKilled) {
  Started run(script(2,
                     "if [ $MEGATRAIN_RANK = 0 ]; then sleep 0.3; exit 4; fi; trap '' TERM; "
                     "while :; do sleep 0.1; done",
                     {"--grace", "1"}));
  EXPECT_EQ(run.wait(), 4);
  EXPECT_TRUE(says(run.output(), "are killed"));
}

TEST_F(LaunchTest, SignalsReachTheRanks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Started run(script(2,
                       "trap 'echo got it; exit 0' INT TERM HUP USR1; echo ready; "
                       "while :; do sleep 0.05; done",
                       {"--max-restarts", "3"}));
    ASSERT_TRUE(run.says("ready", 2));
    run.signal(signal);
    EXPECT_EQ(run.wait(), 0);
    EXPECT_TRUE(run.says("got it", 2));
  }
}

TEST_F(LaunchTest, ASignalToOneRankStopsAllTogether) {
  Started run(launch({"--nproc-per-node", "3", "--max-restarts", "3", "sh", "-c",
                      "echo me $$; exec " + rank_program() + " vote-stop"}));
  ASSERT_TRUE(run.says("voting", 3));
  ::kill(number_after(run.output(), "[rank1] me "), SIGTERM);
  EXPECT_EQ(run.wait(), 75);
  EXPECT_TRUE(run.says("stopped together", 3));
}

TEST_F(LaunchTest, RestartsWithTheNextGeneration) {
  const std::string once =
      "echo generation $MEGATRAIN_GENERATION; "
      "[ $MEGATRAIN_GENERATION = 2 ] || [ $MEGATRAIN_RANK = 1 ] || exit 5; ";
  Started run(script(2, once + "[ $MEGATRAIN_GENERATION = 2 ] || exec sleep 600",
                     {"--max-restarts", "2", "--log-dir", folder_}));
  EXPECT_EQ(run.wait(), 0) << run.output();
  EXPECT_TRUE(says(run.output(), "restart 2 of 2"));
  EXPECT_TRUE(says(read_file(folder_ / "generation-2/rank-1.log"), "generation 2"));
  Started spent(script(1, "exit 6", {"--max-restarts", "1"}));
  EXPECT_EQ(spent.wait(), 6);
  // The user's mistake stays one.
  Started useless(script(1, "exit 2", {"--max-restarts", "5"}));
  EXPECT_EQ(useless.wait(), 2);
  EXPECT_FALSE(says(useless.output(), "restart"));
}

TEST_F(LaunchTest, RanksOfAnEarlierGenerationAreRefused) {
  Started run(launch({"--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c",
                      "[ $MEGATRAIN_GENERATION = 1 ] || exit 1; exec " + rank_program() +
                          " late $((MEGATRAIN_RANK == 0))"}));
  EXPECT_EQ(run.wait(), 2);
  EXPECT_TRUE(says(run.output(), "it is of generation 0, this rendezvous of generation 1"));
}

TEST_F(LaunchTest, AKilledLaunchLeavesNobody) {
  Started run(script(2, "sleep 600 & echo mine $!; echo ready $$; wait"));
  ASSERT_TRUE(run.says("ready", 2));
  ASSERT_TRUE(run.says("mine", 2));
  std::vector<pid_t> processes;
  for (const char* words : {"[rank0] mine ", "[rank1] mine ", "[rank0] ready ", "[rank1] ready "})
    processes.push_back(number_after(run.output(), words));
  for (const pid_t process : processes) EXPECT_TRUE(runs(process));
  run.signal(SIGKILL);
  run.wait();
  const auto deadline = Clock::now() + kPatience;
  for (const pid_t process : processes) {
    while (runs(process) && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(runs(process));
  }
}

TEST_F(LaunchTest, WhatARankLeavesBehindEndsToo) {
  Started run(script(1, "sleep 600 > /dev/null 2>&1 & echo mine $!"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_FALSE(runs(number_after(run.output(), "mine ")));
}

TEST_F(LaunchTest, OwnCommandsAndDryRun) {
  Started own(launch({"--nproc-per-node", "2", "train", "--model", "/nowhere", "--data", "x",
                      "--out", folder_ / "out", "--steps", "1"}));
  EXPECT_EQ(own.wait(), 2);
  EXPECT_TRUE(says(own.output(), "/nowhere"));
  Started dry(launch({"--nproc-per-node", "2", "--nnodes", "2", "--node-rank", "1", "--rendezvous",
                      "node0:7", "--dry-run", "train", "--steps", "3"}));
  EXPECT_EQ(dry.wait(), 0);
  EXPECT_TRUE(says(dry.output(), "[rank3] "));
  EXPECT_TRUE(says(dry.output(), "MEGATRAIN_RANK=3"));
  EXPECT_TRUE(says(dry.output(), "MEGATRAIN_WORLD_SIZE=4"));
  EXPECT_TRUE(says(dry.output(), "megatrain train --steps 3"));
}

TEST_F(LaunchTest, Refused) {
  const auto refused = [](std::vector<std::string> words, const std::string& expected,
                          const Environment& environment = {}) {
    Started run(launch(std::move(words)), environment);
    EXPECT_EQ(run.wait(), 2) << run.output();
    EXPECT_TRUE(says(run.output(), expected));
  };
  refused({}, "needs a command");
  refused({"--nproc", "2", "true"}, "does not know the option --nproc");
  refused({"--nproc-per-node", "0", "true"}, "--nproc-per-node");
  refused({"no-such-program"}, "'no-such-program' is neither");
  refused({"./no-such-program"}, "cannot run ./no-such-program: No such file");
  refused({"launch", "true"}, "cannot launch itself");
  refused({"bench", "--model", "llama-tiny"}, "megatrain bench is one process");
  refused({"--nnodes", "2", "true"}, "--node-rank");
  refused({"--nnodes", "2", "--node-rank", "0", "true"}, "--rendezvous HOST:PORT");
  refused({"true"}, "another launcher", {{"LOCAL_RANK", "0"}});
  refused({"--nproc-per-node", "2", "train", "--model", "llama-tiny", "--data", "x", "--out",
           folder_ / "out", "--steps", "1"},
          "'x': unknown kind of file");
  refused({"--log-dir", "/proc/none", "true"}, "/proc/none");
}

TEST_F(LaunchTest, AMeetingPlaceThatCannotBeOne) {
  const auto refused = [](std::vector<std::string> words, const std::string& expected,
                          const Environment& environment = {}) {
    words.insert(words.end(), {rank_program(), "meet"});
    Started run(launch(std::move(words)), environment);
    EXPECT_EQ(run.wait(), 2) << run.output();
    EXPECT_TRUE(says(run.output(), expected));
    EXPECT_FALSE(says(run.output(), "[rank"));
  };
  const std::string unknown = "the host 'none.invalid' cannot be found";
  refused({"--rendezvous", "none.invalid"}, "--rendezvous none.invalid: " + unknown);
  refused({}, "MEGATRAIN_RENDEZVOUS=none.invalid:7: " + unknown,
          {{"MEGATRAIN_RENDEZVOUS", "none.invalid:7"}});
  refused({"--nnodes", "2", "--node-rank", "0", "--rendezvous", "none.invalid:7"},
          "--rendezvous none.invalid:7: " + unknown);
  // An address for documents, which no machine has.
  refused({"--nproc-per-node", "2", "--rendezvous", "192.0.2.1:7"},
          "--rendezvous 192.0.2.1:7: '192.0.2.1' is no address of this machine");
  // A pod's name may come later.
  Started pod(
      launch({"--nnodes", "2", "--node-rank", "0", "--rendezvous",
              "none.invalid:" + std::to_string(free_port()), "--join-timeout", "1", "true"}),
      {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}});
  EXPECT_EQ(pod.wait(), 2);
  EXPECT_TRUE(says(pod.output(), "the meeting place is none.invalid:"));
}

/// One node serves at loopback alone; its ranks go there by whatever name it is called.
TEST_F(LaunchTest, ASingleNodeMayBeNamed) {
  for (const char* name : {"localhost", "127.0.0.2"}) {
    Started run(launch({"--nproc-per-node", "2", "--rendezvous", name, rank_program(), "meet"}));
    EXPECT_EQ(run.wait(), 0) << run.output();
  }
}

/// Two launches on this machine, as if on two.
std::pair<Started, Started> two_nodes(const std::vector<std::string>& command,
                                      std::vector<std::string> options = {}) {
  const std::string port = std::to_string(free_port());
  const auto node = [&](const char* rank, const char* count) {
    std::vector<std::string> words{"--nnodes",         "2",   "--node-rank",  rank,
                                   "--nproc-per-node", count, "--rendezvous", "127.0.0.1:" + port};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), command.begin(), command.end());
    return Started(launch(words));
  };
  return {node("0", "1"), node("1", "2")};
}

TEST_F(LaunchTest, TwoNodesMeet) {
  auto [first, second] = two_nodes({rank_program(), "meet"});
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_TRUE(says(first.output(), "[rank0] rank 0 of 3, local rank 0 of 1 on node 0 of 2"));
  EXPECT_TRUE(says(second.output(), "[rank2] rank 2 of 3, local rank 1 of 2 on node 1 of 2"));
}

TEST_F(LaunchTest, TwoNodesFailAndRestartTogether) {
  auto [first, second] =
      two_nodes({"sh", "-c",
                 "[ $MEGATRAIN_GENERATION = 0 ] || exec " + rank_program() +
                     " meet; [ $MEGATRAIN_RANK = 2 ] || exec sleep 600; echo I fall; exit 9"},
                {"--max-restarts", "1"});
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_TRUE(says(first.output(), "failed: exit code 9; its last lines:\nI fall"));
  EXPECT_TRUE(says(first.output(), "generation 1"));
}

TEST_F(LaunchTest, ASignalToOneNodeStopsBoth) {
  auto [first, second] =
      two_nodes({"sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done"});
  ASSERT_TRUE(first.says("ready", 1));
  ASSERT_TRUE(second.says("ready", 2));
  second.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 75);
  EXPECT_EQ(second.wait(), 75);
}

TEST_F(LaunchTest, AMissingNodeIsNamed) {
  Started alone(
      launch({"--nnodes", "2", "--node-rank", "0", "--rendezvous",
              "127.0.0.1:" + std::to_string(free_port()), "--join-timeout", "1", "true"}));
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_TRUE(says(alone.output(), "missing: node 1 (it has not come)"));
}

TEST_F(LaunchTest, ALostNodeEndsTheOther) {
  auto [first, second] = two_nodes({"sh", "-c", "echo ready; exec sleep 600"});
  ASSERT_TRUE(first.says("ready", 1));
  ASSERT_TRUE(second.says("ready", 2));
  second.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 1);
  EXPECT_TRUE(says(first.output(), "node 1"));
}

TEST_F(LaunchTest, ASignalEndsTheWaitForANode) {
  Started alone(launch({"--nnodes", "2", "--node-rank", "1", "--rendezvous",
                        "127.0.0.1:" + std::to_string(free_port()), "true"}));
  std::this_thread::sleep_for(200ms);
  alone.signal(SIGINT);
  EXPECT_EQ(alone.wait(), 128 + SIGINT);
}

TEST_F(LaunchTest, TwoHosts) {
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "no network namespaces here (they need root)";
  const auto node = [&](int number) {
    return Started(hosts.on(
        number, launch({"--nnodes", "2", "--node-rank", std::to_string(number), "--nproc-per-node",
                        "2", "--rendezvous", TwoHosts::kAddress + std::string(":7000"),
                        rank_program(), "meet"})));
  };
  Started first = node(0);
  Started second = node(1);
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_TRUE(says(second.output(), "[rank3] rank 3 of 4"));
}

}  // namespace
}  // namespace megatrain::parallel
