#include "tests/engine/slow_device.h"

#include <chrono>
#include <thread>

#include "core/device/cpu/cpu_device.h"

namespace megatrain::testing {
namespace {

class SlowStream : public Stream {
 public:
  SlowStream(std::unique_ptr<Stream> inner, double seconds)
      : inner_(std::move(inner)), seconds_(seconds) {}
  Device& device() override { return inner_->device(); }
  void record(Event& event) override { inner_->record(event); }
  void wait(Event& event) override { inner_->wait(event); }
  void copy(void* destination, const void* source, std::int64_t bytes) override {
    static_cast<CpuStream&>(*inner_).enqueue([seconds = seconds_] {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    });
    inner_->copy(destination, source, bytes);
  }
  void fill(void* destination, std::uint8_t value, std::int64_t bytes) override {
    inner_->fill(destination, value, bytes);
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::unique_ptr<Stream> inner_;
  double seconds_;
};

class SlowDevice : public Device {
 public:
  SlowDevice(std::unique_ptr<Device> inner, double seconds)
      : inner_(std::move(inner)), seconds_(seconds) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    auto stream = inner_->make_stream(name);
    // Those that kernels and collectives run on, which ask for a stream of the device itself.
    if (name == "compute" || name == "gather" || name == "scatter") return stream;
    return std::make_unique<SlowStream>(std::move(stream), seconds_);
  }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  std::unique_ptr<TimedEvent> make_timed_event() override { return inner_->make_timed_event(); }
  std::unique_ptr<DeviceMemory> allocate(std::int64_t bytes) override {
    return inner_->allocate(bytes);
  }
  std::unique_ptr<HostRegistration> register_host(void* data, std::int64_t bytes) override {
    return inner_->register_host(data, bytes);
  }
  std::int64_t free_bytes() const override { return inner_->free_bytes(); }
  std::int64_t reserve_bytes() const override { return inner_->reserve_bytes(); }

 private:
  std::unique_ptr<Device> inner_;
  double seconds_;
};

}  // namespace

std::unique_ptr<Device> make_slow_device(int threads, double seconds) {
  return std::make_unique<SlowDevice>(make_cpu_device({.threads = threads}), seconds);
}

}  // namespace megatrain::testing
