// What is built on NCCL, tried with a library that pretends: ranks are threads without a GPU. What
// NCCL itself does is seen by nccl_test.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "parallel/nccl/nccl_transport.h"
#include "tests/parallel/pretend_nccl.h"
#include "tests/parallel/stores.h"
#include "tests/rank_threads.h"

namespace megatrain::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong{60'000};

/// A rank's GPU and what it has there. What collectives may still have when somebody throws lies in
/// its memory.
struct Gpu {
  Gpu(int ordinal, std::chrono::milliseconds timeout)
      : device(make_pretend_gpu(ordinal)),
        transport(make_nccl_transport(*device, timeout)),
        stream(device->make_stream("collectives")),
        reached(device->make_event()) {}
  /// A word of the GPU's memory.
  [[nodiscard]] float* word(std::size_t n = 0) const { return memory.get() + n; }
  /// Waits for what is enqueued; then it must be good.
  void wait(Communicator& communicator) const {
    stream->record(*reached);
    reached->synchronize();
    communicator.check();
  }
  static constexpr std::size_t kWords = 100;
  const std::unique_ptr<float[]> memory = std::make_unique<float[]>(kWords);
  const std::unique_ptr<Device> device;
  const std::unique_ptr<NcclTransport> transport;
  const std::unique_ptr<Stream> stream;
  const std::unique_ptr<Event> reached;
};

class Protocol : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> connect(const Gpu& gpu, int rank, int size,
                                        const std::string& name = "data") {
    return gpu.transport->connect(store_, name, rank, size);
  }
  /// Runs `body` for each rank. @returns what each threw that was a PeerError
  std::vector<std::optional<PeerError>> run(
      int size, std::chrono::milliseconds timeout,
      const std::function<void(int, const Gpu&, Communicator&)>& body) {
    std::vector<std::optional<PeerError>> errors(static_cast<std::size_t>(size));
    const auto failures = on_threads(size, [&](int rank) {
      const Gpu gpu(rank, timeout);
      try {
        const auto communicator = connect(gpu, rank, size);
        body(rank, gpu, *communicator);
      } catch (const PeerError& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
    return errors;
  }
  const std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();
};

void expect_blamed(const std::optional<PeerError>& error, const std::vector<int>& ranks,
                   const std::string& words) {
  ASSERT_TRUE(error) << "no error that blames anybody";
  EXPECT_EQ(error->ranks(), ranks) << error->what();
  EXPECT_NE(std::string(error->what()).find(words), std::string::npos)
      << "'" << words << "' is not in: " << error->what();
}

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

TEST_F(Protocol, CollectivesTakeTheirPlaces) {
  for (const int size : {2, 3}) {
    const auto errors = run(size, kLong, [&](int rank, const Gpu& gpu, Communicator& all) {
      EXPECT_EQ(all.rank(), rank);
      EXPECT_EQ(all.size(), size);
      constexpr Index kCount = 1001;
      for (int round = 0; round < 5; ++round) {
        std::vector<float> whole(at(kCount * size));
        for (Index i = 0; i < kCount; ++i)
          whole[at(rank * kCount + i)] = static_cast<float>(100 * rank + round);
        all.all_gather(*gpu.stream, whole.data() + rank * kCount, whole.data(), kCount, DType::f32);
        gpu.wait(all);
        for (int other = 0; other < size; ++other)
          ASSERT_EQ(whole[at(other * kCount + kCount - 1)],
                    static_cast<float>(100 * other + round));
        std::vector<float> slice(at(kCount));
        all.reduce_scatter(*gpu.stream, whole.data(), slice.data(), kCount);
        all.all_reduce(*gpu.stream, whole.data(), kCount * size);
        gpu.wait(all);
        ASSERT_EQ(slice.front(), static_cast<float>(size * (100 * rank + round)));
        ASSERT_EQ(whole.back(), static_cast<float>(size * (100 * (size - 1) + round)));
        whole[0] = static_cast<float>(rank);
        all.broadcast(*gpu.stream, whole.data(), 1, DType::f32, size - 1);
        gpu.wait(all);
        ASSERT_EQ(whole[0], static_cast<float>(size - 1));
      }
      all.all_reduce(*gpu.stream, nullptr, 0);
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
    store_->clear();
  }
}

TEST_F(Protocol, HostsAgreeInTheOrderOfTheRanks) {
  const auto number = [](int rank, int i) { return (rank == 1 ? -1e16 : 1e16) + 0.75 * rank + i; };
  const auto errors = run(3, kLong, [&](int rank, const Gpu&, Communicator& all) {
    std::vector<double> values(150);  // more than go at once
    for (int i = 0; i < 150; ++i) values[at(i)] = number(rank, i);
    all.sum(values);
    for (int i = 0; i < 150; ++i)
      ASSERT_EQ(values[at(i)], (number(0, i) + number(1, i)) + number(2, i));
    all.sum({});
    EXPECT_EQ(all.max(-rank), 0);
    EXPECT_TRUE(std::isnan(all.max(rank == 2 ? std::numeric_limits<double>::quiet_NaN() : 1)));
    all.barrier(kLong);
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST_F(Protocol, NameWhoDoesNotCome) {
  const Gpu gpu(0, 200ms);
  store_->set("nccl/data/here/2", "");
  try {
    (void)connect(gpu, 0, 3);
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    expect_blamed(error, {1}, "rank 1 did not come");
  }
}

TEST_F(Protocol, NameWhoCameAndWasLost) {
  // Rank 1 says that it is there and never connects.
  const Gpu gpu(0, 200ms);
  store_->set("nccl/data/here/1", "");
  try {
    (void)connect(gpu, 0, 2);
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    expect_blamed(error, {1}, "no sign of rank 1");
  }
}

TEST_F(Protocol, WakeWhenOneGivesUp) {
  for (const bool agrees : {false, true}) {
    const auto errors = run(3, kLong, [&](int rank, const Gpu& gpu, Communicator& all) {
      all.all_reduce(*gpu.stream, gpu.word(), 1);
      gpu.wait(all);
      if (rank == 1) {
        std::this_thread::sleep_for(50ms);
        all.abort("the disk is full");
        all.abort("this comes second");
      }
      if (agrees)
        (void)all.max(1);
      else
        all.all_reduce(*gpu.stream, gpu.word(), 1);
      gpu.wait(all);
    });
    for (const auto& error : errors) expect_blamed(error, {1}, "the disk is full");
    // Four first collectives come with the connection.
    expect_blamed(errors[0], {1}, agrees ? "max 6 (1 values)" : "all_reduce 6 (1 fp32 elements)");
    store_->clear();
  }
}

TEST_F(Protocol, BlameWhoIsLate) {
  std::atomic<int> failed = 0;
  const auto errors = run(3, 300ms, [&](int rank, const Gpu& gpu, Communicator& all) {
    all.all_reduce(*gpu.stream, gpu.word(), 1);
    gpu.wait(all);
    if (rank == 2) {
      while (failed < 2) std::this_thread::sleep_for(1ms);
      all.check();
      return;
    }
    try {
      all.all_reduce(*gpu.stream, gpu.word(), 1);
      gpu.wait(all);
    } catch (const PeerError&) {
      ++failed;
      throw;
    }
  });
  for (const int rank : {0, 1})
    expect_blamed(errors[at(rank)], {2}, "rank 2 came no further than call 5");
  EXPECT_TRUE(errors[2]) << "it has not heard of it";
}

TEST_F(Protocol, BarriersHaveALimitOfTheirOwn) {
  std::atomic<bool> over = false;
  const auto errors = run(2, kLong, [&](int rank, const Gpu&, Communicator& all) {
    while (rank == 1 && !over) std::this_thread::sleep_for(1ms);
    try {
      all.barrier(rank == 0 ? 200ms : kLong);
    } catch (const PeerError&) {
      over = true;
      throw;
    }
  });
  expect_blamed(errors[0], {1}, "barrier 5 of 'data'");
  EXPECT_TRUE(errors[1]);
}

TEST_F(Protocol, ErrorsOfTheLibraryAreFound) {
  const auto errors = run(2, kLong, [&](int rank, const Gpu& gpu, Communicator& all) {
    all.all_reduce(*gpu.stream, gpu.word(), 1);
    gpu.wait(all);
    if (rank == 0) {
      pretend_remote_error(0);
      all.check();
      FAIL() << "the error was not seen";
    }
    all.all_reduce(*gpu.stream, gpu.word(), 1);
    gpu.wait(all);
  });
  for (const auto& error : errors) EXPECT_TRUE(error);
  EXPECT_NE(std::string(errors[0]->what()).find("remote process exited (pretended)"),
            std::string::npos)
      << errors[0]->what();
}

TEST_F(Protocol, CommunicatorsOfAGpuEndTogether) {
  // Two kernels wait for a rank that is gone; neither's memory is freed before both have left.
  std::atomic<int> left = 0;
  const auto failures = on_threads(2, [&](int rank) {
    const Gpu gpu(rank, kLong);
    const auto other_stream = gpu.device->make_stream("other");
    const auto first = connect(gpu, rank, 2, "first");
    const auto second = connect(gpu, rank, 2, "second");
    if (rank == 1) {
      first->abort("enough");
      while (left == 0) std::this_thread::sleep_for(1ms);
      EXPECT_THROW(second->check(), PeerError);
      EXPECT_THROW((void)connect(gpu, rank, 2, "third"), PeerError);
      return;
    }
    try {
      first->all_reduce(*gpu.stream, gpu.word(), 1);
      second->all_reduce(*other_stream, gpu.word(1), 1);
      gpu.stream->synchronize();
      other_stream->synchronize();
      second->check();
      ADD_FAILURE() << "it is over";
    } catch (const PeerError& error) {
      EXPECT_NE(std::string(error.what()).find("enough"), std::string::npos) << error.what();
    }
    ++left;
  });
  for (const auto& failure : failures) EXPECT_FALSE(failure);
}

TEST_F(Protocol, LeavingWhileOthersAreAwaitedEnds) {
  const auto errors = run(2, 300ms, [&](int rank, const Gpu& gpu, Communicator& all) {
    if (rank == 0) all.all_reduce(*gpu.stream, gpu.word(), 1);
  });
  EXPECT_FALSE(errors[0]);
  EXPECT_FALSE(errors[1]);
}

TEST_F(Protocol, AbortComesAtAnyTime) {
  for (int round = 0; round < 6; ++round) {
    const auto errors = run(2, kLong, [&](int rank, const Gpu& gpu, Communicator& all) {
      std::jthread other;
      if (rank == 0)
        other = std::jthread([&all, round] {
          std::this_thread::sleep_for(std::chrono::microseconds(331 * round));
          all.abort("enough");
        });
      for (int call = 0;; ++call) {
        all.all_reduce(*gpu.stream, gpu.word(), Gpu::kWords);
        if (call % 3 == 0) (void)all.max(1);
        gpu.wait(all);
      }
    });
    for (const auto& error : errors) expect_blamed(error, {0}, "enough");
    store_->clear();
  }
}

TEST(NcclTransport, TakesGpusOnly) {
  const auto cpu = make_cpu_device({.threads = 1});
  EXPECT_THROW((void)make_nccl_transport(*cpu, kLong), LogicError);
}

}  // namespace
}  // namespace megatrain::testing
