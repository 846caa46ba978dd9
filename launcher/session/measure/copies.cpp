#include "launcher/session/measure/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <vector>

#include "launcher/session/measure/timing.h"

namespace megatrain::launcher {

namespace {

/// Calls a second until `deadline`.
double calls_until(double deadline, const std::function<void()>& call) {
  const double begin = seconds_now();
  double calls = 0;
  double now = begin;
  for (; now < deadline; now = seconds_now()) {
    call();
    ++calls;
  }
  return calls / (now - begin);
}

std::future<double> in_background(double deadline, std::function<void()> call) {
  return std::async(std::launch::async,
                    [deadline, call = std::move(call)] { return calls_until(deadline, call); });
}

struct Gpu {
  std::unique_ptr<Device> device;
  std::unique_ptr<Copies> copies;
};

double copy_together(int gpus, double seconds) {
  ThreadPool pool(1);
  std::vector<Gpu> opened;
  for (int ordinal = 0; ordinal < gpus; ++ordinal) {
    Gpu gpu{make_cuda_device({.ordinal = ordinal}), nullptr};
    gpu.copies = std::make_unique<Copies>(*gpu.device, pool);
    opened.push_back(std::move(gpu));
  }
  const auto together = [&](void (Copies::*enqueue)()) {
    const double deadline = seconds_now() + seconds;
    std::vector<std::future<double>> calls;
    for (const Gpu& gpu : opened)
      calls.push_back(in_background(deadline, [&copies = *gpu.copies, enqueue] {
        (copies.*enqueue)();
        copies.wait();
      }));
    double rate = 0;
    for (std::size_t i = 0; i < calls.size(); ++i)
      rate += calls[i].get() * static_cast<double>(opened[i].copies->bytes());
    return rate;
  };
  return std::min(together(&Copies::enqueue_to_device), together(&Copies::enqueue_to_host));
}

}  // namespace

Copies::Copies(Device& device, ThreadPool& pool)
    : bytes_(device.info().kind == DeviceKind::cuda ? Index{256} << 20 : Index{64} << 20),
      down_(device.make_stream("measurement down")),
      up_(device.make_stream("measurement up")),
      memory_(device.allocate(2 * bytes_)),
      host_("measurement", 2 * bytes_, device, pool) {}

void Copies::enqueue_to_device() { down_->copy(memory_->data(), host_.data(), bytes_); }
void Copies::enqueue_to_host() {
  up_->copy(host_.data() + bytes_, memory_->data() + bytes_, bytes_);
}
void Copies::wait() {
  down_->synchronize();
  up_->synchronize();
}

Copies::Alone Copies::alone(double least_seconds) {
  const auto wait_for_it = [this] { wait(); };
  const auto both = [this] {
    enqueue_to_device();
    enqueue_to_host();
  };
  const auto size = static_cast<double>(bytes_);
  return {
      .to_device = size / seconds_a_call([&] { enqueue_to_device(); }, wait_for_it, least_seconds),
      .to_host = size / seconds_a_call([&] { enqueue_to_host(); }, wait_for_it, least_seconds),
      .both_ways = 2 * size / seconds_a_call(both, wait_for_it, least_seconds)};
}

Copies::Beside Copies::beside(const std::function<void()>& work, double seconds) {
  const double deadline = seconds_now() + seconds;
  auto to_device = in_background(deadline, [this] {
    enqueue_to_device();
    down_->synchronize();
  });
  auto to_host = in_background(deadline, [this] {
    enqueue_to_host();
    up_->synchronize();
  });
  const double calls = calls_until(deadline, work);
  const auto size = static_cast<double>(bytes_);
  return {.to_device = size * to_device.get(), .to_host = size * to_host.get(), .calls = calls};
}

double measure_host_memory(int gpus, double seconds) {
  // In a thread of its own: opening a GPU makes it the one that its thread works on.
  return std::async(std::launch::async, copy_together, gpus, seconds).get();
}

}  // namespace megatrain::launcher
