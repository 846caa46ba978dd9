#include "core/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "tests/base/fake_root.h"

namespace megatrain {
namespace {

using Numbers = std::vector<int>;

TEST(ProcessorList, ReadsAndWritesWhatTheKernelWrites) {
  EXPECT_EQ(parse_processor_list("0-3,8,10-11\n"), (Numbers{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_processor_list("7"), Numbers{7});
  EXPECT_EQ(processor_list(Numbers{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(processor_list(Numbers{7}), "7");
  EXPECT_EQ(processor_list(Numbers{}), "");
}

TEST(ProcessorList, EndsWhereItMakesNoSense) {
  for (const char* text : {"", "\n", "x", "-1", "0-", "0-99999999999", "0-2000000000", "5-x"})
    EXPECT_EQ(parse_processor_list(text), Numbers{}) << text;
  EXPECT_EQ(parse_processor_list("3,,5"), Numbers{3});
  EXPECT_EQ(parse_processor_list("5-3,6"), Numbers{6});
}

class ProcessorsTest : public FakeRoot {
 protected:
  /// Processor `number` is a hardware thread of the core that has `threads`.
  void processor(int number, const std::string& threads,
                 const std::string& file = "core_cpus_list") const {
    write(folder(number) + "/topology/" + file, threads + "\n");
  }
  void cache(int number, int index, int level, const std::string& size,
             const std::string& shared) const {
    const std::string path = folder(number) + "/cache/index" + std::to_string(index) + "/";
    write(path + "level", std::to_string(level) + "\n");
    write(path + "size", size + "\n");
    write(path + "shared_cpu_list", shared + "\n");
  }
  /// Two nodes with two cores each of two threads; core c has processors c and c + 4, and even
  /// cores are on node 0.
  void two_nodes() const {
    for (int p = 0; p < 8; ++p)
      processor(p, std::to_string(p % 4) + "," + std::to_string(p % 4 + 4));
    write("sys/devices/system/node/node0/cpulist", "0,2,4,6\n");
    write("sys/devices/system/node/node1/cpulist", "1,3,5,7\n");
    write("sys/devices/system/node/possible", "0-1\n");
  }
  [[nodiscard]] Numbers cores(const Numbers& processors) const {
    Numbers numbers;
    for (const PhysicalCore& core : physical_cores(processors, root_))
      numbers.push_back(core.processor);
    return numbers;
  }

 private:
  static std::string folder(int number) {
    return "sys/devices/system/cpu/cpu" + std::to_string(number);
  }
};

TEST_F(ProcessorsTest, OneHardwareThreadOfEachCoreCounts) {
  for (int p = 0; p < 4; ++p) processor(p, p < 2 ? "0-1" : "2-3");
  EXPECT_EQ(cores({0, 1, 2, 3}), (Numbers{0, 2}));
  EXPECT_EQ(cores({1, 2, 3}), (Numbers{1, 2})) << "the first that the mask leaves";
  EXPECT_EQ(cores({3}), Numbers{3});
  EXPECT_EQ(cores({}), Numbers{});
}

TEST_F(ProcessorsTest, OlderKernelsNameThemOtherwise) {
  for (int p = 0; p < 4; ++p) processor(p, p % 2 == 0 ? "0,2" : "1,3", "thread_siblings_list");
  EXPECT_EQ(cores({0, 1, 2, 3}), (Numbers{0, 1}));
}

TEST_F(ProcessorsTest, NeighboursInMemoryComeTogether) {
  two_nodes();
  EXPECT_EQ(cores({0, 1, 2, 3, 4, 5, 6, 7}), (Numbers{0, 2, 1, 3}));
  const auto found = physical_cores(Numbers{3, 4, 6}, root_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].processor, 4);
  EXPECT_EQ(found[0].node, 0);
  EXPECT_EQ(found[2].processor, 3);
  EXPECT_EQ(found[2].node, 1);
}

TEST_F(ProcessorsTest, AContainerThatHidesTheTopologyHasNoCores) {
  EXPECT_EQ(cores({0, 1}), Numbers{});
  processor(0, "0");
  EXPECT_EQ(cores({0, 1}), Numbers{}) << "half an answer is none";
}

TEST_F(ProcessorsTest, SharersGetEveryCoreOnce) {
  two_nodes();
  const auto all = physical_cores(Numbers{0, 1, 2, 3}, root_);
  for (const int sharers : {1, 2, 3, 4, 5}) {
    Numbers given;
    for (int rank = 0; rank < sharers; ++rank)
      for (const PhysicalCore& core : part_of_cores(all, rank, sharers))
        given.push_back(core.processor);
    EXPECT_EQ(given, (Numbers{0, 2, 1, 3})) << sharers;
  }
  for (const PhysicalCore& core : part_of_cores(all, 1, 2)) EXPECT_EQ(core.node, 1);
}

TEST_F(ProcessorsTest, LastLevelCachesAddUp) {
  for (int p = 0; p < 4; ++p) {
    cache(p, 0, 1, "48K", std::to_string(p));
    cache(p, 2, 2, "2048K", std::to_string(p));
    cache(p, 3, 3, "32768K", p < 2 ? "0-1" : "2-3");
  }
  EXPECT_EQ(last_level_cache(Numbers{0, 1, 2, 3}, root_), Index{64} << 20);
  EXPECT_EQ(last_level_cache(Numbers{0, 1}, root_), Index{32} << 20);
  EXPECT_EQ(last_level_cache(Numbers{9}, root_), 0);
  cache(5, 0, 1, "nonsense", "5");
  EXPECT_EQ(last_level_cache(Numbers{5}, root_), 0);
}

TEST(Processors, ThisProcessCanBePinnedToItsOwn) {
  const Numbers mask = affinity_mask();
  ASSERT_FALSE(mask.empty());
  EXPECT_TRUE(can_pin(mask));
  EXPECT_EQ(affinity_mask(), mask) << "trying leaves no trace";
  EXPECT_FALSE(can_pin(Numbers{mask.front(), CPU_SETSIZE - 1})) << "there is no such processor";
  EXPECT_TRUE(can_pin({}));
  // In a thread of its own, whose mask ends with it.
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(mask.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(affinity_mask(), Numbers{mask.back()});
  }).join();
}

}  // namespace
}  // namespace megatrain
