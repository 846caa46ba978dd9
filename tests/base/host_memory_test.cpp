#include "core/base/host_memory.h"

#include <gtest/gtest.h>

#include "tests/base/fake_root.h"

namespace megatrain {
namespace {

class HostMemoryTest : public FakeRoot {
 protected:
  HostMemoryTest() {
    write("proc/meminfo",
          "MemTotal:       16000000 kB\nMemFree:  1 kB\n"
          "MemAvailable:    8000000 kB\nMemAvailableX: 5 kB\n");
  }
};

TEST_F(HostMemoryTest, WithoutCgroupsTheKernelsWordCounts) {
  const HostMemory memory = available_host_memory(root_);
  EXPECT_EQ(memory.available, Index{8000000} * 1024);
  EXPECT_EQ(memory.bound, "MemAvailable");
}

TEST_F(HostMemoryTest, TheTightestCgroupOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "1000\n");
  write("sys/fs/cgroup/job/memory.max", "5000000\n");
  write("sys/fs/cgroup/job/memory.current", "2000000\n");
  const HostMemory memory = available_host_memory(root_);
  EXPECT_EQ(memory.available, 3000000);
  EXPECT_NE(memory.bound.find("/job"), std::string::npos) << memory.bound;
}

TEST_F(HostMemoryTest, PageCacheOfTheCgroupIsFree) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "5000000\n");
  write("sys/fs/cgroup/memory.current", "4000000\n");
  write("sys/fs/cgroup/memory.stat", "anon 500000\ninactive_file 2000000\nactive_file 1000000\n");
  EXPECT_EQ(available_host_memory(root_).available, 4000000);
}

TEST_F(HostMemoryTest, AFullCgroupLeavesNothing) {
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000\n");
  write("sys/fs/cgroup/a/memory.current", "2000\n");
  EXPECT_EQ(available_host_memory(root_).available, 0);
}

TEST_F(HostMemoryTest, VersionOneCountsToo) {
  // A container's path that is not mounted inside it: the limit is at the mount's top.
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
  EXPECT_EQ(available_host_memory(root_).available, 1500000);
  // "No limit" of version 1 is a huge number.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available_host_memory(root_).bound, "MemAvailable");
}

TEST_F(HostMemoryTest, NoMeminfoIsAnError) {
  std::filesystem::remove(root_ / "proc/meminfo");
  EXPECT_THROW((void)available_host_memory(root_), Error);
}

TEST(HostMemory, RefusesWithNeedHaveAndWhatToDo) {
  const HostMemory memory = available_host_memory();
  EXPECT_GT(memory.available, 0);
  EXPECT_NO_THROW(require_host_memory("a test", 4096));
  try {
    require_host_memory("a test", Index{1} << 60);
    FAIL() << "an exbibyte was granted";
  } catch (const UserError& error) {
    const std::string message = error.what();
    const std::string parts[] = {"a test", std::to_string(Index{1} << 60), "available", "bytes",
                                 "raise the limit"};
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace megatrain
