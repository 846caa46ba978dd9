#include "core/store/host_arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/host_memory.h"
#include "tests/memory_map.h"

namespace megatrain {
namespace {

constexpr Index kMiB = Index{1} << 20;

struct Range {
  const void* data;
  Index bytes;
};

/// A device that only notes what is registered with it.
class NotingDevice : public Device {
 public:
  struct Registration : HostRegistration {
    Registration(NotingDevice& to, const void* data) : device(to), begin(data) {}
    ~Registration() override {
      // Still mapped at this moment: unregistering memory that is gone is undefined.
      EXPECT_GT(mapped_bytes(begin, 4096), 0);
      ++device.ended;
    }
    NotingDevice& device;
    const void* begin;
  };

  NotingDevice() { info_.total_memory = 0; }
  const DeviceInfo& info() const override { return info_; }
  std::unique_ptr<Stream> make_stream(std::string_view) override { return nullptr; }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  std::unique_ptr<TimedEvent> make_timed_event() override { return nullptr; }
  std::unique_ptr<DeviceMemory> allocate(std::int64_t) override { return nullptr; }
  std::unique_ptr<HostRegistration> register_host(void* data, std::int64_t bytes) override {
    ranges.push_back({data, bytes});
    std::this_thread::sleep_for(std::chrono::milliseconds(registration_milliseconds));
    return std::make_unique<Registration>(*this, data);
  }
  std::int64_t free_bytes() const override { return 0; }
  std::int64_t reserve_bytes() const override { return 0; }

  std::vector<Range> ranges;
  int ended = 0;
  int registration_milliseconds = 0;

 private:
  DeviceInfo info_;
};

TEST(HostArena, IsExactlyAsLargeAsAskedAndThere) {
  ThreadPool pool(2);
  NotingDevice device;
  for (const Index bytes : {Index{1}, Index{4096}, 3 * kMiB + 4096, 256 * kMiB + 12288}) {
    const Index before = resident_bytes();
    const HostArena arena("test arena", bytes, device, pool);
    const Index size = round_up(bytes, 4096);
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_EQ(mapped_bytes(arena.data(), size), size);
    EXPECT_EQ(resident_bytes(arena.data(), size), size);
    if (kProcessIsOurs && bytes > 100 * kMiB) {
      const auto grown = static_cast<double>(resident_bytes() - before);
      EXPECT_NEAR(grown / static_cast<double>(bytes), 1.0, 0.01);
    }
    // Zero from end to end, and writable.
    EXPECT_TRUE(std::all_of(arena.data(), arena.data() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    arena.data()[0] = arena.data()[bytes - 1] = std::byte{1};
  }
}

TEST(HostArena, GivesEverythingBack) {
  ThreadPool pool(1);
  NotingDevice device;
  const Index before = virtual_bytes();
  const void* data = nullptr;
  {
    HostArena arena("test arena", 64 * kMiB + 4096, device, pool);
    data = arena.data();
    // Moves keep the data in place, and free it once.
    HostArena moved = std::move(arena);
    EXPECT_EQ(moved.data(), data);
    arena = std::move(moved);
    EXPECT_EQ(arena.data(), data);
    EXPECT_EQ(device.ended, 0);
  }
  EXPECT_EQ(device.ended, 1);
  EXPECT_EQ(mapped_bytes(data, 64 * kMiB), 0);
  EXPECT_LE(virtual_bytes(), before + kMiB);
}

TEST(HostArena, AnEmptyOneMapsNothing) {
  ThreadPool pool(1);
  NotingDevice device;
  const HostArena arena("nothing", 0, device, pool);
  EXPECT_EQ(arena.data(), nullptr);
  EXPECT_TRUE(device.ranges.empty());
  EXPECT_EQ(HostArena().data(), nullptr);
}

TEST(HostArena, RefusesBeforeMapping) {
  ThreadPool pool(1);
  NotingDevice device;
  const Index before = virtual_bytes();
  EXPECT_THROW(HostArena("too much", available_host_memory().available * 2, device, pool),
               UserError);
  EXPECT_LE(virtual_bytes(), before + kMiB);
  EXPECT_TRUE(device.ranges.empty());
}

/// Ends with 2 when the system's own limit makes the arena refuse.
[[noreturn]] void make_arena_under_a_limit() {
  const auto most = static_cast<rlim_t>(virtual_bytes() + (Index{64} << 20));
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
  NotingDevice device;
  ThreadPool pool(1);
  try {
    const HostArena arena("an arena", Index{128} << 20, device, pool);
  } catch (const UserError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(2);
  }
  std::_Exit(0);
}

TEST(HostArena, TheSystemsLimitIsTheUsersToMend) {
  // Sanitizers map more than any limit leaves.
  if (virtual_bytes() > Index{1} << 40) GTEST_SKIP() << "address space is not ours to limit";
  EXPECT_EXIT(make_arena_under_a_limit(), ::testing::ExitedWithCode(2),
              "cannot map 128.00 MiB .* for an arena.*ulimit -v");
}

TEST(HostArena, RegistersAllOfItOnceAndTellsProgress) {
  ThreadPool pool(2);
  NotingDevice device;
  Index touched = 0;
  const Index bytes = 40 * kMiB + 8192;
  const std::vector<Index> cuts = {4096, 5000, 20 * kMiB};
  const HostArena arena("test arena", bytes, device, pool,
                        {.cuts = cuts, .touched = [&](Index more) { touched += more; }});
  EXPECT_EQ(touched, bytes);
  ASSERT_EQ(device.ranges.size(), 1U);  // far below 16 GiB
  EXPECT_EQ(device.ranges[0].data, arena.data());
  EXPECT_EQ(device.ranges[0].bytes, bytes);
}

TEST(HostArena, TellsTheTouchFromTheRegistration) {
  ThreadPool pool(1);
  NotingDevice device;
  device.registration_milliseconds = 30;
  const auto wait = [](Index) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const HostArena arena("test arena", kMiB, device, pool, {.touched = wait});
  EXPECT_GE(arena.seconds().touch, 0.02);
  EXPECT_GE(arena.seconds().registration, 0.03);
  EXPECT_EQ(HostArena("nothing", 0, device, pool).seconds().ratio(), 1);
  ArenaSeconds sum{.touch = 1, .registration = 0.5};
  sum += {.touch = 3, .registration = 0.5};
  EXPECT_DOUBLE_EQ(sum.ratio(), 1.25);
}

TEST(HostArena, CutsRegistrationsAtWholePagesOfTheCutsGiven) {
  const Index gib = Index{1} << 30;
  const std::vector<Index> cuts = {0,        9 * gib,  16 * gib + 100, 17 * gib,
                                   20 * gib, 33 * gib, 34 * gib};
  const auto ends = registration_ends(34 * gib + 5, cuts, 4096);
  EXPECT_EQ(ends, (std::vector<Index>{17 * gib, 33 * gib, 34 * gib + 5}));
  EXPECT_EQ(registration_ends(100, {}, 4096), std::vector<Index>{100});
  EXPECT_EQ(registration_ends(40 * gib, {}, 4096), std::vector<Index>{40 * gib});
  const std::vector<Index> at_the_end = {0, 20 * gib};
  EXPECT_EQ(registration_ends(20 * gib, at_the_end, 4096), std::vector<Index>{20 * gib});
}

}  // namespace
}  // namespace megatrain
