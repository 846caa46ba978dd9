/// @file
/// `megatrain train` on two hosts: replicas across them, shard groups inside. The hosts are network
/// namespaces, with one disk.

#include <csignal>

#include <chrono>

#include "tests/launcher/ranks.h"
#include "tests/parallel/meeting.h"
#include "tests/parallel/two_hosts.h"

namespace megatrain::launcher {
namespace {

using parallel::says;
using parallel::Started;

class Hosts : public Ranks {
 protected:
  void SetUp() override {
    if (!hosts_.up()) GTEST_SKIP() << "no network namespaces here (they need root)";
    Ranks::SetUp();
  }
  /// Two ranks of `train` on that host.
  [[nodiscard]] Started start(int host, std::vector<std::string> train) const {
    return Started(hosts_.on(
        host, launch(2, std::move(train),
                     {"--nnodes", "2", "--node-rank", std::to_string(host), "--rendezvous",
                      std::string(parallel::TwoHosts::kAddress) + ":7000"})));
  }
  /// Both hosts' parts of a run that has come to its first checkpoint.
  [[nodiscard]] std::pair<Started, Started> start_long(const std::string& out) const {
    const auto train = long_run(out, {"--save-every", "5"});
    std::pair<Started, Started> both{start(0, train), start(1, train)};
    EXPECT_TRUE(both.first.says("checkpoint step_"));
    return both;
  }
  /// Its end, soon, with an error that names the node.
  static void expect_ended(Started& launch, const std::string& name) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(launch.wait(), 1) << launch.output();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    EXPECT_TRUE(says(launch.output(), name));
  }

  parallel::TwoHosts hosts_;
};

TEST_F(Hosts, TrainWhatOneMachineDoes) {
  expect_done(launch(4, run("machine", {"--shard-group", "2"})));
  // By default the ranks of a node are a group.
  for (const auto& [out, options] :
       {std::pair<std::string, std::vector<std::string>>{"given", {"--shard-group", "2"}},
        {"default", {}}}) {
    SCOPED_TRACE(out);
    Started first = start(0, run(out, options));
    Started second = start(1, run(out, options));
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    EXPECT_TRUE(model(out) == model("machine"));
    for (const char* key : {"loss", "grad_norm", "val_loss"})
      EXPECT_EQ(series(path(out + "/metrics.jsonl"), key),
                series(path("machine/metrics.jsonl"), key));
  }
}

TEST_F(Hosts, OneGroupAcrossBoth) {
  expect_done(launch(4, run("machine", {"--shard-group", "4"})));
  Started first = start(0, run("hosts", {"--shard-group", "4"}));
  Started second = start(1, run("hosts", {"--shard-group", "4"}));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_TRUE(model("hosts") == model("machine"));
}

/// The other host ends, and both go on when they are started again.
TEST_F(Hosts, AKilledHost) {
  for (const int lost : {0, 1}) {
    SCOPED_TRACE(lost);
    const std::string out = "killed" + std::to_string(lost);
    auto [first, second] = start_long(out);
    (lost == 0 ? first : second).signal(SIGKILL);
    expect_ended(lost == 0 ? second : first, "node " + std::to_string(lost));
    (lost == 0 ? first : second).wait();

    auto [again, other] = start_long(out);
    EXPECT_TRUE(again.says("going on from step"));
    other.signal(SIGTERM);
    EXPECT_EQ(again.wait(), 75) << again.output();
    EXPECT_EQ(other.wait(), 75) << other.output();
  }
}

/// Nothing breaks off: there is only silence.
TEST_F(Hosts, APulledCable) {
  auto [first, second] = start_long("cable");
  ASSERT_TRUE(hosts_.unplug());
  expect_ended(first, "node 1");
  expect_ended(second, "node 0");
}

}  // namespace
}  // namespace megatrain::launcher
