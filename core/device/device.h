#pragma once
/// @file
/// What the engine needs of a compute device: memory, streams, events and asynchronous copies.
///
/// Semantics are CUDA's on every device. A stream runs its work in the order of the calls;
/// streams are independent of one another; an event is recorded on one stream and waited for on
/// another. The CPU device implements streams as real threads, so a missing wait is a real race.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/types.h"

namespace megatrain {

class Device;

enum class DeviceKind : std::uint8_t { cpu, cuda };

constexpr std::string_view name(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : "cuda";
}

/// A point in a stream's work. Re-recordable; a wait refers to the latest record made before it.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the calling host thread until the latest record is reached. For the end of a step
  /// only. @throws LogicError when never recorded; Error when the device failed.
  virtual void synchronize() = 0;
  /// True when the latest record is reached.
  [[nodiscard]] virtual bool reached() = 0;
};

/// Work that was captured on a stream, to be launched any number of times by one call. What it
/// computes with is fixed: addresses and scalars are those of the capture. The destructor waits for
/// its launches, so the streams that it was launched on must still be there.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// An ordered queue of device work. Calls return at once.
class Stream {
 public:
  virtual ~Stream() = default;
  [[nodiscard]] virtual Device& device() = 0;
  /// Marks this point of the stream in `event`.
  virtual void record(Event& event) = 0;
  /// Later work of this stream starts after the latest record of `event`.
  /// @throws LogicError when `event` was never recorded: such a wait would silently be none.
  virtual void wait(Event& event) = 0;
  /// Copies bytes between device memory and registered host memory, or within one of them.
  /// Never converts. Ranges must not overlap. Host memory must come from Device::register_host or
  /// allocate_host: a copy from pageable memory would not be asynchronous.
  virtual void copy(void* destination, const void* source, std::int64_t bytes) = 0;
  /// Fills device memory with one byte value (zero, or 0xFF to poison).
  virtual void fill(void* destination, std::uint8_t value, std::int64_t bytes) = 0;
  /// Blocks the calling host thread until the stream is empty; start-up and shutdown only.
  /// @throws Error when earlier work of the stream failed
  virtual void synchronize() = 0;
  /// Collects what `enqueue` enqueues on this stream; none of it runs before it is launched.
  /// `enqueue` runs once, on the calling thread, and may enqueue copies, fills and ops alone: no
  /// events. What libraries set up at first use should be set up: run the same work once before.
  /// What other threads and streams do meanwhile is not touched. Only where DeviceInfo::graphs.
  /// @throws what `enqueue` throws; Error when the device cannot capture it
  [[nodiscard]] virtual std::unique_ptr<Graph> capture(const std::function<void()>& enqueue);
  /// Enqueues all of a graph that was captured on a stream of the same device.
  virtual void launch(Graph& graph);
};

/// Memory on the device; freed by the destructor. Aligned to at least 256 bytes.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

/// Keeps a range of host memory registered for DMA; unregisters in the destructor.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

/// Timing of device work, made of two records; for traces.
class TimedEvent : public Event {
 public:
  /// Seconds from `start` to this event, both reached.
  [[nodiscard]] virtual double seconds_since(const TimedEvent& start) const = 0;
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;           ///< as the vendor names it
  std::int64_t total_memory;  ///< bytes
  /// What decides bits beyond the plan: instruction set and library versions; part of the
  /// numerics key.
  std::string numerics;
  /// Dense peak of the compute type in FLOP/s from the data sheet, 0 when unknown.
  double peak_bf16_flops = 0;
  bool graphs = false;  ///< its streams capture and launch
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  /// @param name  for traces and debuggers ("compute", "host-to-device", ...)
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
  [[nodiscard]] virtual std::unique_ptr<TimedEvent> make_timed_event() = 0;
  /// One allocation of exactly `bytes` (rounded up to the device's granularity by the driver).
  /// @throws UserError when the device has not that much memory free
  [[nodiscard]] virtual std::unique_ptr<DeviceMemory> allocate(std::int64_t bytes) = 0;
  /// Registers existing host memory for DMA. A no-op object on the CPU device.
  [[nodiscard]] virtual std::unique_ptr<HostRegistration> register_host(void* data,
                                                                        std::int64_t bytes) = 0;
  /// Bytes that allocate() could still give this process at this moment, as far as the driver (on
  /// the CPU device: the kernel) knows. Other processes may take them meanwhile.
  [[nodiscard]] virtual std::int64_t free_bytes() const = 0;
  /// Bytes of device memory that this process uses outside allocate(): context, modules,
  /// library handles. Measured; 0 on the CPU device.
  [[nodiscard]] virtual std::int64_t reserve_bytes() const = 0;
};

struct CpuDeviceOptions {
  int threads = 0;  ///< threads of a compute loop; 0: one a usable core
};

/// The CPU device: streams are threads. @throws UserError for a thread count below 1
std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options = {});

struct CudaDeviceOptions {
  int ordinal = 0;
};

/// @throws UserError when built without CUDA, or no such GPU, driver or compute capability
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

/// GPUs that make_cuda_device could open; 0 in a build without CUDA or without a driver.
int cuda_device_count();

}  // namespace megatrain
