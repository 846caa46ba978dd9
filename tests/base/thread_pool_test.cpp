#include "core/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/processors.h"

namespace megatrain {
namespace {

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t pieces : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(pieces));
      pool.for_each(pieces, [&](std::int64_t piece) { ++runs[static_cast<std::size_t>(piece)]; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, WorksOnPiecesAtTheSameTime) {
  ThreadPool pool(3);
  // Nobody passes before three threads are here: hangs if the pool ran fewer at once.
  std::latch together(3);
  std::atomic<int> passed{0};
  pool.for_each(3, [&](std::int64_t) {
    together.arrive_and_wait();
    ++passed;
  });
  EXPECT_EQ(passed, 3);
}

TEST(ThreadPool, ManyShortLoopsSeeTheirOwnBody) {
  // A worker that wakes late must not run pieces of the next loop with the body of this one.
  ThreadPool pool(4);
  std::vector<std::int64_t> seen(3);
  for (std::int64_t loop = 0; loop < 20000; ++loop) {
    pool.for_each(3, [&](std::int64_t piece) { seen[static_cast<std::size_t>(piece)] = loop; });
    for (const auto value : seen) ASSERT_EQ(value, loop);
  }
}

TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than a worker stays awake
    std::latch together(2);
    pool.for_each(2, [&](std::int64_t) { together.arrive_and_wait(); });
  }
}

TEST(ThreadPool, AFailureIsRethrownAfterTheRestRan) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> runs{0};
    const auto body = [&](std::int64_t piece) {
      ++runs;
      if (piece == 2) throw std::runtime_error("piece 2");
    };
    EXPECT_THROW(pool.for_each(10, body), std::runtime_error);
    EXPECT_EQ(runs, 10);
    EXPECT_NO_THROW(pool.for_each(10, [](std::int64_t) {})) << "the failure was kept";
  }
}

TEST(ThreadPool, PinsWorkersAndLeavesTheCallerAlone) {
  const std::vector<int> mask = affinity_mask();
  const int last = mask.back();
  ThreadPool pool(3, {mask.front(), last, last});
  std::latch together(3);
  std::mutex mutex;
  std::map<std::thread::id, std::vector<int>> masks;
  pool.for_each(3, [&](std::int64_t) {
    together.arrive_and_wait();
    const std::lock_guard lock(mutex);
    masks[std::this_thread::get_id()] = affinity_mask();
  });
  ASSERT_EQ(masks.size(), 3u);
  for (const auto& [thread, own] : masks)
    EXPECT_EQ(own, thread == std::this_thread::get_id() ? mask : std::vector<int>{last});
}

TEST(ThreadPool, WorksWhereAWorkerCannotBePinned) {
  ThreadPool pool(3, {0, CPU_SETSIZE - 1});  // no such processor, and none for the last one
  std::atomic<int> runs{0};
  pool.for_each(10, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST(ThreadPool, RefusesToBeEmpty) { EXPECT_THROW(ThreadPool(0), UserError); }

}  // namespace
}  // namespace megatrain
