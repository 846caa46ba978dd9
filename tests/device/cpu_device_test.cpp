#include "core/device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/device/cpu/simd_targets.h"
// After the targets.
#include <hwy/targets.h>

namespace megatrain {
namespace {

using namespace std::chrono_literals;

/// Long enough that only a hang reaches it.
constexpr auto kPatience = 20s;

/// Waits for a flag that another thread sets; false when nobody does.
bool comes_true(const std::atomic<bool>& flag) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!flag) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Work that holds its stream until it is let go.
class Gate {
 public:
  void hold(CpuStream& stream) {
    stream.enqueue([this] {
      if (!comes_true(open_)) throw Error("the gate never opened");
    });
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

class CpuDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Stream> stream_ = device_->make_stream("a stream with a long name");
  std::unique_ptr<Stream> other_ = device_->make_stream("other");

  static CpuStream& own(const std::unique_ptr<Stream>& stream) {
    return dynamic_cast<CpuStream&>(*stream);
  }

 private:
  // Made first, destroyed last.
  static inline const std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});

 protected:
  static Device& device() { return *device_; }
};

TEST_F(CpuDeviceTest, SaysWhatItIs) {
  const DeviceInfo& info = device().info();
  EXPECT_EQ(info.kind, DeviceKind::cpu);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.total_memory, Index{1} << 28);
  EXPECT_NE(info.numerics.find("oneDNN"), std::string::npos) << info.numerics;
  EXPECT_GT(device().free_bytes(), 0);
  EXPECT_LT(device().free_bytes(), info.total_memory);
  EXPECT_EQ(device().reserve_bytes(), 0);
  EXPECT_EQ(&stream_->device(), &device());
}

// A handler's frame would be written below a stack pointer that oneDNN has moved to the heap.
TEST_F(CpuDeviceTest, ThreadsThatComputeRunNoSignalHandlers) {
  const auto held = [] {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    return set;
  };
  const sigset_t here = held();
  // The stream's own thread is one of the two.
  std::array<sigset_t, 2> computing;
  own(stream_).enqueue([&] {
    std::latch both(2);
    own(stream_).pool().for_each(2, [&](Index piece) {
      computing[static_cast<std::size_t>(piece)] = held();
      both.arrive_and_wait();
    });
  });
  stream_->synchronize();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPROF, SIGALRM}) {
    EXPECT_EQ(sigismember(&here, signal), 0) << signal;
    for (const sigset_t& set : computing) EXPECT_EQ(sigismember(&set, signal), 1) << signal;
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    for (const sigset_t& set : computing) EXPECT_EQ(sigismember(&set, fault), 0) << fault;
}

TEST_F(CpuDeviceTest, MemoryIsExactAlignedAndZero) {
  const auto memory = device().allocate(10001);
  EXPECT_EQ(memory->bytes(), 10001);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 4096, 0U);
  for (Index i = 0; i < 10001; ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
  EXPECT_EQ(device().allocate(0)->bytes(), 0);
}

TEST_F(CpuDeviceTest, MemoryThatIsNotThereIsTheUsersMistake) {
  for (const Index bytes : {device().info().total_memory + 1, Index{1} << 50, Index{1} << 62}) {
    try {
      const auto memory = device().allocate(bytes);
      FAIL() << "allocated " << bytes;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(format_bytes(bytes)), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(CpuDeviceTest, NumericsNameTheInstructionSetsThatKernelsChose) {
  const std::string best = make_cpu_device()->info().numerics;
  for (const char* part : {"oneDNN ", "Highway "})
    EXPECT_NE(best.find(part), std::string::npos) << best;
  // As on a processor that has nothing better: kernels would run on this one too.
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  const std::string least = make_cpu_device()->info().numerics;
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_TRUE(least.ends_with(std::string(" ") + hwy::TargetName(HWY_STATIC_TARGET))) << least;
}

TEST_F(CpuDeviceTest, ThreadsAreChecked) {
  EXPECT_THROW(make_cpu_device({.threads = -1}), UserError);
  const auto three = make_cpu_device({.threads = 3});
  const auto stream = three->make_stream("three");
  EXPECT_EQ(own(stream).pool().threads(), 3);
  const auto automatic = make_cpu_device();
  const auto other = automatic->make_stream("automatic");
  EXPECT_EQ(own(other).pool().threads(), available_cores());
}

TEST_F(CpuDeviceTest, RunsInOrderAndReturnsAtOnce) {
  Gate gate;
  std::vector<int> order;
  gate.hold(own(stream_));
  for (int i = 0; i < 1000; ++i) own(stream_).enqueue([&order, i] { order.push_back(i); });
  gate.open();  // the calls above came back although nothing could run
  stream_->synchronize();
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(CpuDeviceTest, CopiesAndFills) {
  std::vector<std::uint8_t> host(1000);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::uint8_t>(i * 7);
  std::vector<std::uint8_t> back(1000);
  const auto registration = device().register_host(host.data(), 1000);
  ASSERT_NE(registration, nullptr);
  const auto memory = device().allocate(1000);
  stream_->copy(memory->data(), host.data(), 1000);
  stream_->fill(memory->data() + 10, 0xFF, 5);
  stream_->copy(back.data(), memory->data(), 1000);
  stream_->copy(nullptr, nullptr, 0);
  stream_->synchronize();
  std::memset(host.data() + 10, 0xFF, 5);
  EXPECT_EQ(back, host);
}

TEST_F(CpuDeviceTest, RefusesACopyOntoItself) {
  const auto memory = device().allocate(100);
  EXPECT_THROW(stream_->copy(memory->data(), memory->data() + 50, 51), LogicError);
  EXPECT_THROW(stream_->copy(memory->data() + 50, memory->data(), 51), LogicError);
  EXPECT_THROW(stream_->copy(memory->data(), memory->data() + 50, -1), LogicError);
  EXPECT_NO_THROW(stream_->copy(memory->data(), memory->data() + 50, 50));
  stream_->synchronize();
}

TEST_F(CpuDeviceTest, CopyAndComputeRunTogether) {
  // The compute stream is busy until a copy that is enqueued later has happened: streams that took
  // turns would time out. The same with more copies than the streams could buffer up.
  const auto memory = device().allocate(1 << 16);
  const auto source = device().allocate(1 << 16);
  for (int round = 0; round < 20; ++round) {
    Gate copied;
    std::atomic<bool> still_computing{false};
    bool met = false;
    own(stream_).enqueue([&] { still_computing = true; });
    copied.hold(own(stream_));
    own(stream_).enqueue([&] { still_computing = false; });
    for (int i = 0; i < 50; ++i) other_->copy(memory->data(), source->data(), memory->bytes());
    own(other_).enqueue([&] {
      met = comes_true(still_computing);
      copied.open();
    });
    EXPECT_NO_THROW(stream_->synchronize());
    other_->synchronize();
    EXPECT_TRUE(met);
  }
}

TEST_F(CpuDeviceTest, AnEventOrdersStreams) {
  const auto event = device().make_event();
  std::vector<int> order;  // unprotected: only the event orders it
  for (int i = 0; i < 500; ++i) {
    own(stream_).enqueue([&order] { order.push_back(0); });
    stream_->record(*event);
    other_->wait(*event);
    own(other_).enqueue([&order] { order.push_back(1); });
    other_->record(*event);
    stream_->wait(*event);
  }
  stream_->synchronize();
  other_->synchronize();
  ASSERT_EQ(order.size(), 1000U);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i % 2));
}

TEST_F(CpuDeviceTest, AWaitMeansTheRecordBeforeIt) {
  const auto event = device().make_event();
  Gate gate;
  stream_->record(*event);
  other_->wait(*event);
  gate.hold(own(stream_));
  stream_->record(*event);  // must not hold up the wait above
  other_->synchronize();
  EXPECT_FALSE(event->reached());
  // The latest record counts, though it is on another stream and reached before the older one.
  other_->record(*event);
  event->synchronize();
  EXPECT_TRUE(event->reached());
  gate.open();
  stream_->synchronize();
}

TEST_F(CpuDeviceTest, AnEventNeverRecordedIsABug) {
  const auto event = device().make_event();
  EXPECT_THROW(stream_->wait(*event), LogicError);
  EXPECT_THROW(event->synchronize(), LogicError);
  EXPECT_FALSE(event->reached());
}

TEST_F(CpuDeviceTest, AnEventMayDieBeforeItIsReached) {
  Gate gate;
  gate.hold(own(stream_));
  auto event = device().make_event();
  stream_->record(*event);
  other_->wait(*event);
  event.reset();
  gate.open();
  other_->synchronize();
}

TEST_F(CpuDeviceTest, TimesWork) {
  const auto begin = device().make_timed_event();
  const auto end = device().make_timed_event();
  stream_->record(*begin);
  own(stream_).enqueue([] { std::this_thread::sleep_for(20ms); });
  stream_->record(*end);
  end->synchronize();
  EXPECT_GE(end->seconds_since(*begin), 0.02);
  EXPECT_LE(begin->seconds_since(*end), -0.02);
  Gate gate;
  gate.hold(own(stream_));
  stream_->record(*end);
  EXPECT_THROW(static_cast<void>(end->seconds_since(*begin)), LogicError);
  gate.open();
  stream_->synchronize();
}

TEST_F(CpuDeviceTest, AFailureStopsTheStreamAndIsRethrown) {
  const auto stream = device().make_stream("fails");
  const auto before = device().make_event();
  const auto after = device().make_event();
  bool ran = false;
  stream->record(*before);
  own(stream).enqueue([] { throw UserError("out of luck"); });
  own(stream).enqueue([&ran] { ran = true; });
  stream->record(*after);
  EXPECT_NO_THROW(before->synchronize());
  EXPECT_THROW(after->synchronize(), UserError);
  EXPECT_TRUE(after->reached());
  EXPECT_THROW(stream->synchronize(), UserError);
  EXPECT_THROW(stream->synchronize(), UserError) << "the stream has failed for good";
  EXPECT_FALSE(ran);

  // What depends on it fails too; what came before does not, and other streams live on.
  const auto dependent = device().make_stream("dependent");
  dependent->wait(*before);
  EXPECT_NO_THROW(dependent->synchronize());
  dependent->wait(*after);
  own(dependent).enqueue([&ran] { ran = true; });
  EXPECT_THROW(dependent->synchronize(), UserError);
  EXPECT_FALSE(ran);
  EXPECT_NO_THROW(other_->synchronize());
}

TEST_F(CpuDeviceTest, AStreamEndsItsWorkBeforeItDies) {
  std::atomic<int> ran{0};
  {
    const auto stream = device().make_stream("short");
    for (int i = 0; i < 100; ++i) own(stream).enqueue([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST_F(CpuDeviceTest, PoolsOfTwoStreamsWorkAtTheSameTime) {
  std::atomic<bool> first{false};
  std::atomic<bool> second{false};
  const auto meet = [](CpuStream& stream, std::atomic<bool>& mine, std::atomic<bool>& theirs) {
    stream.enqueue([&] {
      stream.pool().for_each(4, [&](Index) {
        mine = true;
        if (!comes_true(theirs)) throw Error("the other stream's loop did not run");
      });
    });
  };
  meet(own(stream_), first, second);
  meet(own(other_), second, first);
  EXPECT_NO_THROW(stream_->synchronize());
  EXPECT_NO_THROW(other_->synchronize());
}

TEST_F(CpuDeviceTest, TinyNumbersAreZeroInAStreamsWorkAlone) {
  const volatile float tiny = 1e-40F;  // below the smallest normal number
  const volatile float small = 1e-30F;
  std::atomic<int> kept{0};
  const auto compute = [&] {
    if (tiny * 1e30F != 0) ++kept;    // an operand
    if (small * 1e-10F != 0) ++kept;  // a result
  };
  own(stream_).enqueue([&] {
    compute();
    // Each thread of the pool takes one piece: none ends before the other began.
    std::atomic<int> begun{0};
    own(stream_).pool().for_each(2, [&](std::int64_t) {
      ++begun;
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (begun < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      compute();
    });
    EXPECT_EQ(begun, 2);
  });
  stream_->synchronize();
  EXPECT_EQ(kept, 0) << "computing with such numbers is a hundred times slower";
  compute();
  EXPECT_EQ(kept, 2) << "host threads, which run the optimizer, keep every bit";
}

TEST(CudaDevice, IsRefusedWhereThereIsNone) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_cuda_device(), UserError);
}

TEST_F(CpuDeviceTest, AGraphIsLaunchedAsOften) {
  EXPECT_TRUE(device().info().graphs);
  std::vector<int> order;
  std::array<std::uint8_t, 4> bytes{};
  const auto graph = stream_->capture([&] {
    own(stream_).enqueue([&] { order.push_back(1); });
    own(stream_).enqueue([&] { order.push_back(2); });
    stream_->fill(bytes.data(), 7, 2);
    stream_->copy(bytes.data() + 2, bytes.data(), 2);
    own(other_).enqueue([&] { order.push_back(0); });  // another stream goes on as ever
    other_->synchronize();
  });
  stream_->synchronize();
  EXPECT_EQ(order, std::vector<int>{0}) << "a capture runs nothing";
  stream_->launch(*graph);
  own(stream_).enqueue([&] { order.push_back(3); });
  stream_->launch(*graph);
  stream_->synchronize();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 1, 2}));
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 4>{7, 7, 7, 7}));
}

TEST_F(CpuDeviceTest, ACaptureThatFailsLeavesTheStreamOfUse) {
  const auto event = device().make_event();
  stream_->record(*event);
  const auto capture = [&](const std::function<void()>& work) {
    static_cast<void>(stream_->capture(work));
  };
  EXPECT_THROW(capture([] { throw Error("no"); }), Error);
  EXPECT_THROW(capture([&] { stream_->record(*event); }), LogicError);
  EXPECT_THROW(capture([&] { stream_->wait(*event); }), LogicError);
  EXPECT_THROW(capture([&] { stream_->synchronize(); }), LogicError);
  EXPECT_THROW(capture([&] { capture([] {}); }), LogicError);
  bool ran = false;
  own(stream_).enqueue([&] { ran = true; });
  stream_->synchronize();
  EXPECT_TRUE(ran);
  class Foreign : public Graph {
  } foreign;
  EXPECT_THROW(stream_->launch(foreign), LogicError);
}

TEST_F(CpuDeviceTest, WorkOfAGraphThatFailsFailsTheStream) {
  const auto stream = device().make_stream("fails");
  int later = 0;
  const auto graph = stream->capture([&] {
    own(stream).enqueue([] { throw Error("inside"); });
    own(stream).enqueue([&] { ++later; });
  });
  stream->launch(*graph);
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_EQ(later, 0);
}

}  // namespace
}  // namespace megatrain
