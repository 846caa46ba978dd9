#include "core/device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cuda/device_info.h"

namespace megatrain {
namespace {

TEST(CudaDeviceInfo, KnowsPeaksByWholeWords) {
  EXPECT_EQ(peak_bf16_flops("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA L40S"), 362e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA L4"), 121e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA GeForce RTX 4090"), 165e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA GeForce RTX 4090 Laptop GPU"), 0);
  EXPECT_EQ(peak_bf16_flops("NVIDIA A1000"), 0);
  EXPECT_EQ(peak_bf16_flops(""), 0);
}

TEST(CudaDeviceOpen, RefusesWhatIsNotThere) {
  const int count = cuda_device_count();
  EXPECT_THROW(static_cast<void>(make_cuda_device({.ordinal = count + 64})), UserError);
  EXPECT_THROW(static_cast<void>(make_cuda_device({.ordinal = -1})), UserError);
  if (count == 0) {
    EXPECT_THROW(static_cast<void>(make_cuda_device()), UserError);
  }
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
    device_ = make_cuda_device();
    stream_ = device_->make_stream("test");
    other_ = device_->make_stream("other");
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_, other_;
};

/// Host memory that is registered while it lives.
class HostBytes {
 public:
  HostBytes(Device& device, std::size_t count, std::uint8_t value)
      : bytes_(count, value),
        registration_(device.register_host(bytes_.data(), static_cast<Index>(count))) {}
  [[nodiscard]] std::uint8_t* data() { return bytes_.data(); }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::unique_ptr<HostRegistration> registration_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, DeviceKind::cuda);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.total_memory, Index{1} << 30);
  EXPECT_NE(info.numerics.find("sm_"), std::string::npos) << info.numerics;
  EXPECT_NE(info.numerics.find("cublasLt"), std::string::npos) << info.numerics;
  EXPECT_EQ(&stream_->device(), device_.get());
  const auto& properties = dynamic_cast<CudaDevice&>(*device_).properties();
  EXPECT_GE(properties.major, 8);
  EXPECT_GT(properties.multiprocessors, 0);
  EXPECT_GE(properties.shared_memory_per_block, 48 << 10);
}

TEST_F(CudaDeviceTest, CopiesAndFills) {
  constexpr std::size_t kBytes = (std::size_t{1} << 20) + 77;
  HostBytes in(*device_, kBytes, 0);
  for (std::size_t i = 0; i < kBytes; ++i) in.data()[i] = static_cast<std::uint8_t>(i * 7);
  HostBytes out(*device_, kBytes, 1);
  const auto memory = device_->allocate(2 * static_cast<Index>(kBytes));
  ASSERT_EQ(memory->bytes(), 2 * static_cast<Index>(kBytes));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 256, 0U);
  std::byte* second = memory->data() + kBytes;
  stream_->copy(memory->data(), in.data(), kBytes);
  stream_->copy(second, memory->data(), kBytes);
  stream_->fill(second + 5, 0xFF, 3);
  stream_->copy(out.data(), second, kBytes);
  stream_->copy(nullptr, nullptr, 0);
  stream_->synchronize();
  std::vector<std::uint8_t> expected = in.bytes();
  std::memset(expected.data() + 5, 0xFF, 3);
  EXPECT_EQ(out.bytes(), expected);
}

TEST_F(CudaDeviceTest, RefusesPageableMemory) {
  std::vector<std::uint8_t> pageable(4096);
  const auto memory = device_->allocate(4096);
  EXPECT_THROW(stream_->copy(memory->data(), pageable.data(), 4096), LogicError);
  EXPECT_THROW(stream_->copy(pageable.data(), memory->data(), 4096), LogicError);
}

TEST_F(CudaDeviceTest, EventsOrderStreams) {
  constexpr Index kBytes = Index{256} << 20;
  HostBytes out(*device_, 4, 9);
  const auto memory = device_->allocate(kBytes);
  const auto event = device_->make_event();
  for (std::uint8_t round = 1; round < 6; ++round) {
    stream_->fill(memory->data(), round, kBytes);
    stream_->record(*event);
    other_->wait(*event);
    other_->copy(out.data(), memory->data() + kBytes - 4, 4);
    other_->synchronize();
    EXPECT_TRUE(event->reached());
    EXPECT_EQ(out.bytes(), std::vector<std::uint8_t>(4, round));
  }
}

TEST_F(CudaDeviceTest, AWaitForNothingIsRefused) {
  const auto event = device_->make_event();
  EXPECT_THROW(stream_->wait(*event), LogicError);
  EXPECT_THROW(event->synchronize(), LogicError);
  stream_->record(*event);
  stream_->wait(*event);
  event->synchronize();
  EXPECT_TRUE(event->reached());
  const auto cpu = make_cpu_device({.threads = 1});
  const auto foreign = cpu->make_event();
  EXPECT_THROW(stream_->record(*foreign), LogicError);
}

TEST_F(CudaDeviceTest, TimesWork) {
  const auto memory = device_->allocate(Index{1} << 28);
  const auto begin = device_->make_timed_event();
  const auto end = device_->make_timed_event();
  EXPECT_THROW(static_cast<void>(end->seconds_since(*begin)), LogicError);
  stream_->record(*begin);
  stream_->fill(memory->data(), 1, memory->bytes());
  stream_->record(*end);
  end->synchronize();
  EXPECT_GT(end->seconds_since(*begin), 0);
}

TEST_F(CudaDeviceTest, MemoryThatIsNotThereIsTheUsersMistake) {
  try {
    const auto memory = device_->allocate(Index{1} << 46);
    FAIL() << "the GPU gave 64 TiB";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--device-memory"), std::string::npos) << error.what();
  }
  // The failure leaves nothing behind.
  stream_->synchronize();
  EXPECT_EQ(device_->allocate(1024)->bytes(), 1024);
  EXPECT_EQ(device_->allocate(0)->bytes(), 0);
}

TEST_F(CudaDeviceTest, TheReserveDoesNotCountAllocations) {
  const Index before = device_->reserve_bytes();
  const auto memory = device_->allocate(Index{1} << 30);
  EXPECT_LT(device_->reserve_bytes() - before, Index{256} << 20);
  // A context costs something, unless an earlier test of this process has opened it.
  if (before == 0) GTEST_SKIP() << "the context was open before";
  EXPECT_GT(before, Index{16} << 20);
}

TEST_F(CudaDeviceTest, FreeMemoryFallsByWhatIsAllocated) {
  constexpr Index kBytes = Index{1} << 30;
  const Index before = device_->free_bytes();
  EXPECT_LE(before + device_->reserve_bytes(), device_->info().total_memory);
  const auto memory = device_->allocate(kBytes);
  // Others may use the GPU too: within an eighth.
  EXPECT_NEAR(static_cast<double>(before - device_->free_bytes()), kBytes, kBytes / 8.0);
}

TEST_F(CudaDeviceTest, OtherThreadsUseItToo) {
  HostBytes out(*device_, 64, 0);
  const auto memory = device_->allocate(64);
  std::thread([&] {
    stream_->fill(memory->data(), 42, 64);
    stream_->copy(out.data(), memory->data(), 64);
    stream_->synchronize();
  }).join();
  EXPECT_EQ(out.bytes(), std::vector<std::uint8_t>(64, 42));
}

TEST_F(CudaDeviceTest, AGraphIsLaunchedAsOften) {
  ASSERT_TRUE(device_->info().graphs);
  HostBytes in(*device_, 64, 1);
  HostBytes out(*device_, 64, 0);
  const auto memory = device_->allocate(128);
  const auto event = device_->make_event();
  const auto graph = stream_->capture([&] {
    stream_->copy(memory->data(), in.data(), 64);
    stream_->fill(memory->data() + 4, 9, 4);
    // What other threads do meanwhile is no part of it and does not end it.
    std::thread([&] {
      const auto more = device_->allocate(Index{1} << 20);
      other_->fill(more->data(), 3, more->bytes());
      other_->record(*event);
      event->synchronize();
      EXPECT_TRUE(event->reached());
    }).join();
    stream_->copy(memory->data() + 64, memory->data(), 64);
    stream_->copy(out.data(), memory->data() + 64, 64);
  });
  stream_->synchronize();
  EXPECT_EQ(out.bytes(), std::vector<std::uint8_t>(64, 0)) << "a capture runs nothing";
  for (std::uint8_t round = 1; round < 4; ++round) {
    std::memset(in.data(), round, 64);
    stream_->launch(*graph);
    stream_->synchronize();
    std::vector<std::uint8_t> expected(64, round);
    std::memset(expected.data() + 4, 9, 4);
    EXPECT_EQ(out.bytes(), expected);
  }
}

TEST_F(CudaDeviceTest, ACaptureThatFailsLeavesTheStreamOfUse) {
  HostBytes out(*device_, 8, 0);
  const auto memory = device_->allocate(8);
  const auto capture = [&](const std::function<void()>& work) {
    static_cast<void>(stream_->capture(work));
  };
  EXPECT_THROW(capture([&] {
                 stream_->fill(memory->data(), 1, 8);
                 throw UserError("no");
               }),
               UserError);
  EXPECT_THROW(capture([&] { stream_->synchronize(); }), Error);
  EXPECT_THROW(capture([&] { capture([] {}); }), Error);
  const auto cpu = make_cpu_device({.threads = 1});
  const auto foreign = cpu->make_stream("foreign")->capture([] {});
  EXPECT_THROW(stream_->launch(*foreign), LogicError);
  stream_->fill(memory->data(), 5, 8);
  stream_->copy(out.data(), memory->data(), 8);
  stream_->synchronize();
  EXPECT_EQ(out.bytes(), std::vector<std::uint8_t>(8, 5));
}

TEST_F(CudaDeviceTest, RegistersHostMemoryOnce) {
  std::vector<std::uint8_t> bytes(1 << 16);
  {
    const auto first = device_->register_host(bytes.data(), 1 << 16);
    EXPECT_THROW(static_cast<void>(device_->register_host(bytes.data(), 1 << 16)), LogicError);
  }
  EXPECT_NO_THROW(static_cast<void>(device_->register_host(bytes.data(), 1 << 16)));
}

}  // namespace
}  // namespace megatrain
