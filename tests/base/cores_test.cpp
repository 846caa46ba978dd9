#include "core/base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/base/fake_root.h"

namespace megatrain {
namespace {

/// What the affinity mask leaves this process.
int masked_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  return CPU_COUNT(&mask);
}

using CoresTest = FakeRoot;

TEST_F(CoresTest, WithoutQuotaTheMaskCounts) {
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
  EXPECT_FALSE(usable_cores(root_).quota);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
  write("proc/self/cgroup", "4:cpu,cpuacct:/job\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "9999999999\n");
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
}

TEST_F(CoresTest, AnotherProcessHasItsOwnMask) {
  const int all = masked_cores();
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    EXPECT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(usable_cores(root_).count, 1);
    EXPECT_EQ(usable_cores(root_, ::getpid()).count, all);
  }).join();
}

TEST(ShareOfCores, IsDividedUnlessTheStarterDid) {
  EXPECT_EQ(share_of_cores(64, 64, 1), 64);
  EXPECT_EQ(share_of_cores(64, 64, 8), 8);  // not bound
  EXPECT_EQ(share_of_cores(8, 64, 8), 8);   // each to cores of its own
  EXPECT_EQ(share_of_cores(32, 64, 8), 8);  // four to a socket
  EXPECT_EQ(share_of_cores(4, 64, 2), 4);   // to fewer than there are
  EXPECT_EQ(share_of_cores(8, 2, 4), 2);    // the starter says nothing of these
  EXPECT_EQ(share_of_cores(1, 1, 8), 1);
}

TEST_F(CoresTest, AQuotaOfEitherVersionCounts) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/job/cpu.max", "40000 100000\n");
  EXPECT_EQ(usable_cores(root_).count, 1) << "part of a core";
  if (masked_cores() > 1) {
    EXPECT_EQ(usable_cores(root_).bound, "the CPU quota of cgroup /job");
    EXPECT_TRUE(usable_cores(root_).quota);
  }

  write("proc/self/cgroup", "3:memory:/x\n4:cpu,cpuacct:/docker/abc\n");
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores(root_).count, 1);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(usable_cores(root_).count, std::min(2, masked_cores()));
}

TEST_F(CoresTest, AQuotaThatIsNonsenseIsNone) {
  write("proc/self/cgroup", "nonsense\n0::/\n");
  for (const char* text : {"", "0 0\n", "-5 100000\n", "100000\n", "x y\n"}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(usable_cores(root_).count, masked_cores()) << text;
  }
}

TEST_F(CoresTest, TheMaskCounts) {
  // In a thread of its own, whose mask ends with it.
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(usable_cores(root_).count, 1);
  }).join();
  EXPECT_EQ(usable_cores(root_).count, masked_cores());
}

TEST(Cores, ThisProcessHasSome) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace megatrain
