/// @file
/// `megatrain train` as several processes: what one would train, and what happens when one fails.

#include <signal.h>

#include <chrono>
#include <cstdlib>

#include "tests/launcher/ranks.h"
#include "tests/parallel/meeting.h"

namespace megatrain::launcher {
namespace {

namespace fs = std::filesystem;
using parallel::says;
using parallel::Started;

TEST_F(Ranks, TrainWhatOneTrains) {
  expect_done(run("one"));
  for (const int ranks : {2, 3, 4})
    for (const int group : {1, ranks}) {
      const std::string out = "ranks" + std::to_string(ranks) + "by" + std::to_string(group);
      SCOPED_TRACE(out);
      expect_done(launch(
          ranks, run(out, {"--shard-group", std::to_string(group), "--check-replicas", "2"})));
      expect_close(out, "one");
    }
  expect_done(launch(4, run("hybrid", {"--shard-group", "2"})));
  expect_close("hybrid", "one");
  // The same ranks again: the same bits.
  expect_done(launch(4, run("again", {"--shard-group", "2"})));
  EXPECT_TRUE(model("again") == model("hybrid"));
}

TEST_F(Ranks, SaveAtFourAndGoOnWithFewer) {
  const std::vector<std::string> saves = {"--save-every", "3"};
  expect_done(launch(4, run("four", saves)));
  expect_done(launch(4, run("half", {"--save-every", "3", "--steps", "6"})));
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const std::string out = "resumed" + std::to_string(ranks);
    std::vector<std::string> command =
        run(out, {"--save-every", "3", "--resume", path("four/checkpoints/step_00000003")});
    Started refused(launch(ranks, command));
    EXPECT_EQ(refused.wait(), 2);
    EXPECT_TRUE(says(refused.output(), "--accept-change numerics"));
    append(command, {"--accept-change", "numerics"});
    expect_done(ranks == 1 ? command : launch(ranks, command));
    const auto whole = series(path("four/metrics.jsonl"), "loss");
    const auto rest = series(path(out + "/metrics.jsonl"), "loss");
    ASSERT_EQ(rest.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i] / whole[3 + i], 1, kLossBound);
  }
  // With as many ranks it goes on as if it had never stopped.
  expect_done(launch(4, run("same", {"--resume", path("four/checkpoints/step_00000003")})));
  EXPECT_TRUE(model("same") == model("four"));
}

TEST_F(Ranks, EachTracesItsOwnStep) {
  expect_done(launch(2, run("traced", {"--trace", path("trace.json")})));
  for (const char* name : {"trace.json", "trace.rank1.json"}) {
    const std::string trace = read_file(path(name));
    EXPECT_NE(trace.find("all-gather block 0"), std::string::npos) << name;
  }
}

/// Chance goes by the places of elements, not by who has them.
TEST_F(Ranks, MomentsInBf16AreThoseOfOne) {
  const std::vector<std::string> bf16 = {"--moments", "bf16"};
  expect_done(run("one", bf16));
  expect_done(launch(2, run("two", bf16)));
  expect_close("two", "one");
  expect_done(launch(
      4, run("hybrid", {"--moments", "bf16", "--shard-group", "2", "--check-replicas", "2"})));
  expect_close("hybrid", "one");
}

/// So replicas hold the same weights, bit for bit.
TEST_F(Ranks, MastersInBf16AgreeInAllReplicas) {
  const std::vector<std::string> bf16 = {"--masters", "bf16", "--compute", "bf16"};
  expect_done(run("one", bf16));
  std::vector<std::string> checked = bf16;
  append(checked, {"--shard-group", "2", "--check-replicas", "1"});
  expect_done(launch(4, run("hybrid", checked)));
  EXPECT_NEAR(series(path("hybrid/metrics.jsonl"), "loss").back() /
                  series(path("one/metrics.jsonl"), "loss").back(),
              1, 0.01);
}

/// A checkpoint says nothing of who wrote it.
TEST_F(Ranks, WriteTheSameCheckpointAsOne) {
  expect_done(run("one", {"--save-every", "6"}));
  expect_done(launch(
      3, run("three", {"--save-every", "6", "--resume", path("one/checkpoints/step_00000006"),
                       "--accept-change", "numerics", "--val-every", "0"})));
  for (const auto& entry : fs::directory_iterator(path("one/checkpoints/step_00000006"))) {
    if (entry.path().extension() != ".h5") continue;
    EXPECT_TRUE(read_file(entry.path()) ==
                read_file(path("three/checkpoints/step_00000006") / entry.path().filename()));
  }
}

/// Ranks of a long run, started one by one.
class RankFaults : public Ranks {
 protected:
  static void expect_named(std::vector<Started>& ranks, std::size_t lost, const std::string& name) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(ranks[rank].wait(), 1) << ranks[rank].output();
      EXPECT_TRUE(says(ranks[rank].output(), name));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  }
};

TEST_F(RankFaults, AKilledRankEndsTheOthersAndIsNamed) {
  for (const std::size_t lost : {0U, 2U}) {
    SCOPED_TRACE(lost);
    auto ranks = parallel::start_ranks(3, 3, long_run("killed" + std::to_string(lost)));
    ASSERT_TRUE(ranks[0].says("loss", 2));
    ranks[lost].signal(SIGKILL);
    expect_named(ranks, lost, "rank " + std::to_string(lost));
  }
}

TEST_F(RankFaults, AHangingRankEndsTheOthersAndIsNamed) {
  auto ranks = parallel::start_ranks(3, 3, long_run("hangs"));
  ASSERT_TRUE(ranks[0].says("loss", 2));
  ranks[1].signal(SIGSTOP);
  expect_named(ranks, 1, "rank 1");
}

/// However short a step may be, and whoever serves the rendezvous.
TEST_F(RankFaults, AHangingRankIsNamedUnderAShortLimit) {
  for (const std::size_t lost : {0U, 2U}) {
    SCOPED_TRACE(lost);
    const std::string out = "late" + std::to_string(lost);
    auto ranks = parallel::start_ranks(3, 3, long_run(out, {"--rank-timeout", "2"}));
    ASSERT_TRUE(ranks[0].says("loss", 2));
    ranks[lost].signal(SIGSTOP);
    // It does not answer, or between two steps, where all may take their time, it falls silent.
    const std::string name = "rank 2 (process " + std::to_string(ranks[lost].process()) + " on " +
                             parallel::host_name() + ") was lost: ";
    expect_named(ranks, lost, lost == 0 ? ": rank 0 hangs" : name);
    for (const Started& rank : ranks)
      EXPECT_FALSE(rank.output().find("makes no progress") != std::string::npos);
  }
}

TEST_F(RankFaults, OneTooFewAreNamed) {
  auto ranks = parallel::start_ranks(2, 3, run("few", {"--rank-timeout", "3"}));
  for (Started& rank : ranks) {
    EXPECT_EQ(rank.wait(), 2) << rank.output();
    EXPECT_TRUE(says(rank.output(), "rank 2"));
  }
  EXPECT_FALSE(fs::exists(path("few")));
}

TEST_F(RankFaults, AnotherConfigurationIsRefused) {
  const std::uint16_t port = parallel::free_port();
  std::vector<Started> ranks;
  ranks.emplace_back(run("other", {"--rank-timeout", "4"}), parallel::torchrun(0, 2, port));
  ranks.emplace_back(run("other", {"--rank-timeout", "4", "--lr", "1e-3"}),
                     parallel::torchrun(1, 2, port));
  for (Started& rank : ranks) {
    EXPECT_EQ(rank.wait(), 2) << rank.output();
    EXPECT_TRUE(says(rank.output(), "configuration"));
  }
}

/// The one that leads is refused, and all know why.
TEST_F(RankFaults, TwoRunsNeverShareAFolder) {
  const std::vector<std::string> command = long_run("shared", {"--save-every", "1000000"});
  Started first(command);
  ASSERT_TRUE(first.says("loss", 2));
  auto second = parallel::start_ranks(2, 2, command);
  for (Started& rank : second) {
    EXPECT_EQ(rank.wait(), 2) << rank.output();
    EXPECT_TRUE(says(rank.output(), "another run is at work"));
    EXPECT_FALSE(says(rank.output(), "begins anew")) << rank.output();
  }
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 75);
}

/// The same names of files, but one rank sees other data.
TEST_F(RankFaults, UnevenDataAreRefused) {
  write_text(path("short.txt"), read_file(path("text.txt")).substr(100));
  const std::uint16_t port = parallel::free_port();
  std::vector<Started> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> command = run("uneven", {"--rank-timeout", "4"});
    if (rank == 1) append(command, {"--data", path("short.txt")});
    ranks.emplace_back(command, parallel::torchrun(rank, 2, port));
  }
  for (Started& rank : ranks) EXPECT_EQ(rank.wait(), 2) << rank.output();
}

TEST_F(RankFaults, ATerminatedRankLetsAllSaveAndGoOnLater) {
  auto ranks = parallel::start_ranks(2, 2, long_run("term", {"--save-every", "1000000"}));
  ASSERT_TRUE(ranks[0].says("loss", 2));
  ranks[1].signal(SIGTERM);
  for (Started& rank : ranks) EXPECT_EQ(rank.wait(), 75) << rank.output();
  const auto steps = series(path("term/metrics.jsonl"), "step");
  EXPECT_TRUE(fs::exists(path("term/checkpoints/latest")));
  auto again = parallel::start_ranks(2, 2, long_run("term", {"--save-every", "1000000"}));
  ASSERT_TRUE(
      again[0].says("going on from step " + std::to_string(static_cast<int>(steps.back()))));
  ASSERT_TRUE(again[0].says("loss"));  // before that a signal just ends it
  again[0].signal(SIGTERM);
  for (Started& rank : again) EXPECT_EQ(rank.wait(), 75) << rank.output();
}

/// Ctrl-C to launch: all end together, nobody has failed, and the code says that it is not done.
TEST_F(RankFaults, AnInterruptedRunSavesItsModelAndHasTheSignalsCode) {
  Started program(launch(2, long_run("int"), {"--max-restarts", "2"}));
  ASSERT_TRUE(program.says("loss", 2));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 128 + SIGINT) << program.output();
  EXPECT_TRUE(fs::exists(path("int/model/model.safetensors")));
  EXPECT_FALSE(program.output().find("failed") != std::string::npos) << program.output();
}

/// The others have nothing to save: none says that it will, and each says why it ends.
TEST_F(RankFaults, WhoEndsBecauseAnotherFailedSaysSo) {
  Started program(launch(3, long_run("over"), {"--log-dir", path("logs")}));
  ASSERT_TRUE(program.says("loss", 2));
  ::kill(parallel::newest_process("megatrain train ", path("over")), SIGKILL);
  EXPECT_EQ(program.wait(), 128 + SIGKILL) << program.output();
  EXPECT_FALSE(program.output().find("then saving") != std::string::npos) << program.output();
  for (const char* log : {"logs/generation-0/rank-0.log", "logs/generation-0/rank-1.log"})
    EXPECT_TRUE(says(read_file(path(log)), "rank 2 (process"));
}

/// The others end because of it: none of them is called the one that failed.
TEST_F(RankFaults, LaunchNamesTheRankThatHangs) {
  Started program(launch(3, long_run("hung", {"--rank-timeout", "2"}), {"--grace", "1"}));
  ASSERT_TRUE(program.says("loss", 2));
  ::kill(parallel::newest_process("megatrain train ", path("hung")), SIGSTOP);
  EXPECT_EQ(program.wait(), 1) << program.output();
  EXPECT_TRUE(says(program.output(), "warning: launch: rank 2 (process"));
  EXPECT_FALSE(program.output().find("failed: exit code") != std::string::npos) << program.output();
}

/// Before there is anything to save a rank goes at once; the others, which notice, have not failed.
TEST_F(RankFaults, TerminatedWhileLoadingIsNoFailure) {
  Started program(launch(2, long_run("early", {"--save-every", "10"})));
  ASSERT_TRUE(program.says("data: "));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 75) << program.output();
}

/// What bounds a step bounds no save: the disk may be slow.
TEST_F(Ranks, SavesMayTakeLongerThanAStepMay) {
  expect_done(launch(2, run("slow", {"--steps", "4", "--save-every", "2", "--rank-timeout", "2",
                                     "--save-rate", "3MiB", "--val-every", "0"})));
  EXPECT_TRUE(fs::exists(path("slow/checkpoints/step_00000004")));
}

/// A rank dies, launch starts all again, and they end as if nothing had happened.
TEST_F(RankFaults, RestartedFromTheLatestCheckpoint) {
  const std::vector<std::string> options = {"--steps", "60",          "--save-every",
                                            "10",      "--val-every", "0"};
  expect_done(launch(2, run("straight", options)));
  Started program(launch(2, run("restarted", options), {"--max-restarts", "2"}));
  ASSERT_TRUE(program.says("checkpoint step_00000010"));
  const pid_t rank = parallel::newest_process("megatrain train ", path("restarted"));
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGKILL);
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_TRUE(says(program.output(), "going on from step"));
  EXPECT_TRUE(model("restarted") == model("straight"));
}

}  // namespace
}  // namespace megatrain::launcher
