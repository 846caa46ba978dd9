// Which threads a run has, and where they run, on machines that are not this one.

#include "launcher/session/host_threads.h"

#include <gtest/gtest.h>

#include <set>

namespace megatrain::launcher {
namespace {

/// A machine whose core c has `threads` processors, the first of which is c.
HostCores machine(int cores, int threads = 1) {
  HostCores found;
  found.own.count = found.starter = cores * threads;
  for (int core = 0; core < cores; ++core)
    found.physical.push_back({.processor = core, .node = core < cores / 2 ? 0 : 1});
  return found;
}

HostThreads beside_gpu(const HostCores& cores, Index wanted = 0, int rank = 0, int ranks = 1) {
  return choose_host_threads(cores, wanted, DeviceKind::cuda, rank, ranks);
}

std::string pinned(const HostThreads& threads) { return processor_list(threads.pinned()); }

TEST(HostThreads, LeaveACoreToTheIssuingThread) {
  const HostThreads threads = beside_gpu(machine(16));
  EXPECT_EQ(threads.count, 15);
  EXPECT_EQ(threads.processors.size(), 15u) << "the caller's place is the first";
  EXPECT_EQ(pinned(threads), "1-14");
  EXPECT_EQ(describe(threads), "15 threads on the host, 14 of them pinned to processors 1-14");
}

TEST(HostThreads, NeverShareACore) {
  const HostThreads threads = beside_gpu(machine(32, 2));
  EXPECT_EQ(threads.count, 31);
  EXPECT_EQ(pinned(threads), "1-30");
  EXPECT_EQ(pinned(beside_gpu(machine(32, 2), 32)), "1-31");
  const HostThreads more = beside_gpu(machine(32, 2), 33);
  EXPECT_EQ(more.count, 33) << "as asked for";
  EXPECT_TRUE(more.processors.empty());
  EXPECT_EQ(describe(more), "33 threads on the host, not pinned: there are 32 cores for them");
}

TEST(HostThreads, SpreadOverAllNodes) {
  const HostThreads threads = beside_gpu(machine(64), 8);
  EXPECT_EQ(threads.count, 8);
  EXPECT_EQ(pinned(threads), "8,16,24,32,40,48,56");
}

TEST(HostThreads, OfOneCoreOrTwoAreOne) {
  for (const int cores : {1, 2}) {
    const HostThreads threads = beside_gpu(machine(cores));
    EXPECT_EQ(threads.count, 1);
    EXPECT_TRUE(threads.pinned().empty());
    EXPECT_EQ(describe(threads), "1 thread on the host");
  }
  EXPECT_EQ(beside_gpu(machine(1, 2)).count, 1) << "two hardware threads of one core";
}

TEST(HostThreads, AreTooFewBesideAGpuWhereTheProcessMayUseFewCores) {
  HostCores two = machine(2);
  two.own.bound = "the affinity mask";
  EXPECT_EQ(shortage(beside_gpu(two), two, 1),
            "the GPU will wait for updates on the host, where 1 thread works: the affinity mask "
            "allows 2 cores");
  EXPECT_NE(shortage(beside_gpu(machine(4)), machine(4), 1), "");
  EXPECT_EQ(shortage(beside_gpu(machine(16)), machine(16), 1), "");
  const std::string shared = shortage(beside_gpu(machine(16), 0, 0, 8), machine(16), 8);
  EXPECT_NE(shared.find("16 cores, for 8 ranks"), std::string::npos) << shared;
}

TEST(HostThreads, OfRanksThatShareAMachineHaveCoresOfTheirOwn) {
  std::set<int> used;
  for (int rank = 0; rank < 8; ++rank) {
    const HostThreads threads = beside_gpu(machine(64), 0, rank, 8);
    EXPECT_EQ(threads.count, 7);
    ASSERT_EQ(threads.pinned().size(), 6u);
    for (const int processor : threads.pinned()) {
      EXPECT_TRUE(used.insert(processor).second) << processor << " of rank " << rank;
      EXPECT_EQ(processor / 8, rank);
    }
  }
  // As many threads whatever the rank, and cores for all of them.
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(beside_gpu(machine(16), 0, rank, 3).count, 4);
    EXPECT_EQ(beside_gpu(machine(16), 0, rank, 3).pinned().size(), 3u);
  }
  EXPECT_EQ(beside_gpu(machine(4), 0, 5, 8).count, 1) << "more ranks than cores";
}

TEST(HostThreads, KeepToCoresThatTheStarterBoundEachRankTo) {
  HostCores bound = machine(8);
  bound.starter = 64;
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(pinned(beside_gpu(bound, 0, rank, 8)), "1-6");
  // Four ranks to a socket: which of them has which cores, none of them knows.
  HostCores socket = machine(32);
  socket.starter = 64;
  const HostThreads shared = beside_gpu(socket, 0, 5, 8);
  EXPECT_EQ(shared.count, 7);
  EXPECT_TRUE(shared.processors.empty());
  EXPECT_NE(describe(shared).find("not pinned: several ranks"), std::string::npos);
}

TEST(HostThreads, AreNotPinnedByAGuess) {
  HostCores quota = machine(64);
  quota.own = {.count = 16, .bound = "the CPU quota of cgroup /job", .quota = true};
  quota.starter = 16;
  EXPECT_EQ(beside_gpu(quota).count, 15);
  EXPECT_TRUE(beside_gpu(quota).processors.empty());
  EXPECT_EQ(describe(beside_gpu(quota)),
            "15 threads on the host, not pinned: the CPU quota of cgroup /job bounds time, not "
            "cores");
  HostCores hidden = machine(16);
  hidden.physical.clear();
  EXPECT_EQ(beside_gpu(hidden).count, 15);
  EXPECT_TRUE(beside_gpu(hidden).processors.empty());
  HostCores refused = machine(16);
  refused.pinning = false;
  EXPECT_TRUE(beside_gpu(refused).processors.empty());
  EXPECT_NE(describe(beside_gpu(refused)).find("the system refuses it"), std::string::npos);
}

TEST(HostThreads, OfTheCpuDeviceAreLeftToTheSystem) {
  const HostThreads threads = choose_host_threads(machine(16), 0, DeviceKind::cpu, 0, 1);
  EXPECT_EQ(threads.count, 16);
  EXPECT_EQ(describe(threads), "16 threads on the host");
  EXPECT_EQ(choose_host_threads(machine(16), 3, DeviceKind::cpu, 0, 1).count, 3);
  EXPECT_EQ(choose_host_threads(machine(16), 0, DeviceKind::cpu, 1, 4).count, 4);
}

TEST(HostThreads, ThisProcessFindsItsOwn) {
  const HostCores cores = find_host_cores();
  EXPECT_GE(cores.own.count, 1);
  EXPECT_LE(cores.physical.size(), affinity_mask().size());
}

}  // namespace
}  // namespace megatrain::launcher
