#include "core/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "core/base/error.h"
#include "core/device/cuda/check.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/device_info.h"
#include "core/device/cuda/nvml.h"

namespace megatrain {

namespace {

/// bf16 products need an Ampere GPU.
constexpr int kMinimumMajor = 8;
/// The driver hands out device memory in pages of this size.
constexpr std::int64_t kDevicePage = std::int64_t{2} << 20;

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, ordinal), "asking for a GPU's properties");
  return value;
}

std::string pci_bus_id(int ordinal) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal),
        "asking for a GPU's PCI address");
  return text.data();
}

std::string gpu_name(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "asking for a GPU's name");
  return properties.name;
}

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(const CudaDevice& device, std::atomic<std::int64_t>& total, void* data,
             std::int64_t bytes)
      : device_(device), total_(total), data_(static_cast<std::byte*>(data)), bytes_(bytes) {
    total_ += round_up(bytes_, kDevicePage);
  }
  ~CudaMemory() override {
    // No exception may leave: after a device error freeing fails too, and that error was reported.
    static_cast<void>(cudaSetDevice(device_.properties().ordinal));
    static_cast<void>(cudaFree(data_));
    total_ -= round_up(bytes_, kDevicePage);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* data() const override { return data_; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  const CudaDevice& device_;
  std::atomic<std::int64_t>& total_;
  std::byte* data_;
  std::int64_t bytes_;
};

class CudaHostRegistration final : public HostRegistration {
 public:
  explicit CudaHostRegistration(void* data) : data_(data) {}
  ~CudaHostRegistration() override { static_cast<void>(cudaHostUnregister(data_)); }
  CudaHostRegistration(const CudaHostRegistration&) = delete;
  CudaHostRegistration& operator=(const CudaHostRegistration&) = delete;

 private:
  void* data_;
};

class CudaDeviceImpl final : public CudaDevice {
 public:
  explicit CudaDeviceImpl(int ordinal) {
    properties_.ordinal = ordinal;
    properties_.major = attribute(cudaDevAttrComputeCapabilityMajor, ordinal);
    properties_.minor = attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
    properties_.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, ordinal);
    properties_.shared_memory_per_block =
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
    info_.kind = DeviceKind::cuda;
    info_.name = gpu_name(ordinal);
    if (properties_.major < kMinimumMajor)
      throw UserError(fmt::format(
          "GPU {} ({}) has compute capability {}.{}; at least {}.0 is needed. Use --device cpu or "
          "another GPU",
          ordinal, info_.name, properties_.major, properties_.minor, kMinimumMajor));
    open_context();
    if (!has_kernels_for_current_gpu())
      throw UserError(fmt::format(
          "this build's kernels (architectures {}) do not run on GPU {} ({}, compute capability "
          "{}.{}). Configure with -DCMAKE_CUDA_ARCHITECTURES={}{}",
          built_architectures(), ordinal, info_.name, properties_.major, properties_.minor,
          properties_.major, properties_.minor));
    info_.numerics = cuda_numerics(properties_);
    info_.peak_bf16_flops = peak_bf16_flops(info_.name);
    info_.graphs = true;
  }

  const DeviceInfo& info() const override { return info_; }
  const CudaProperties& properties() const override { return properties_; }

  void make_current() const override {
    check(cudaSetDevice(properties_.ordinal), "selecting a GPU");
  }

  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return make_cuda_stream(*this, name);
  }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(*this); }
  std::unique_ptr<TimedEvent> make_timed_event() override { return make_cuda_timed_event(*this); }

  std::unique_ptr<DeviceMemory> allocate(std::int64_t bytes) override {
    require(bytes >= 0, "an allocation of negative size");
    make_current();
    void* data = nullptr;
    const cudaError_t status =
        bytes == 0 ? cudaSuccess : cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw UserError(fmt::format(
          "GPU {} ({}) cannot give {}: {} of {} are free. Lower --device-memory, or end what else "
          "uses this GPU",
          properties_.ordinal, info_.name, format_bytes(bytes), format_bytes(free_bytes()),
          format_bytes(info_.total_memory)));
    }
    check(status, fmt::format("allocating {} of device memory", format_bytes(bytes)));
    return std::make_unique<CudaMemory>(*this, allocated_, data, bytes);
  }

  std::unique_ptr<HostRegistration> register_host(void* data, std::int64_t bytes) override {
    require(data != nullptr && bytes > 0, "an empty range of host memory to register");
    make_current();
    const cudaError_t status =
        cudaHostRegister(data, static_cast<std::size_t>(bytes), cudaHostRegisterPortable);
    if (status == cudaErrorHostMemoryAlreadyRegistered) {
      static_cast<void>(cudaGetLastError());
      throw LogicError("internal error: host memory is registered twice");
    }
    if (status == cudaErrorMemoryAllocation || status == cudaErrorOperatingSystem) {
      static_cast<void>(cudaGetLastError());
      throw UserError(fmt::format(
          "cannot pin {} of host memory for GPU {}: {}. Free host memory, raise the container's "
          "memory limit or 'ulimit -l', or train a smaller model",
          format_bytes(bytes), properties_.ordinal, cudaGetErrorString(status)));
    }
    check(status, fmt::format("registering {} of host memory", format_bytes(bytes)));
    return std::make_unique<CudaHostRegistration>(data);
  }

  std::int64_t free_bytes() const override { return memory().free; }

  std::int64_t reserve_bytes() const override {
    std::int64_t used = 0;
    if (nvml_) {
      used = nvml_->used_bytes().value_or(used_before_) - used_before_;
    } else {
      const Memory now = memory();
      used = now.total - now.free;
    }
    return std::max<std::int64_t>(used - allocated_.load(), 0);
  }

  ReserveSource reserve_source() const override {
    return nvml_ ? ReserveSource::nvml : ReserveSource::runtime_info;
  }

 private:
  struct Memory {
    std::int64_t free, total;
  };

  [[nodiscard]] Memory memory() const {
    make_current();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free device memory");
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }

  /// Creates the context between two readings of the driver's memory count. Host threads that wait
  /// for the device sleep: they share the processor with the optimizer's threads.
  void open_context() {
    nvml_ = Nvml::open(pci_bus_id(properties_.ordinal));
    if (nvml_) used_before_ = nvml_->used_bytes().value_or(0);
    check(cudaInitDevice(properties_.ordinal, cudaDeviceScheduleBlockingSync,
                         cudaInitDeviceFlagsAreValid),
          fmt::format("opening GPU {}", properties_.ordinal));
    info_.total_memory = memory().total;
  }

  DeviceInfo info_;
  CudaProperties properties_;
  std::unique_ptr<Nvml> nvml_;
  std::int64_t used_before_ = 0;
  std::atomic<std::int64_t> allocated_ = 0;
};

/// GPUs that the driver shows. An absent driver or GPU is an answer here, not an error.
int visible_gpus(cudaError_t& status) {
  int count = 0;
  status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? count : 0;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  cudaError_t status = cudaSuccess;
  const int count = visible_gpus(status);
  if (count == 0)
    throw UserError(fmt::format(
        "device 'cuda' was asked for, but no GPU can be used: {}. Use --device cpu, or install the "
        "NVIDIA driver and make a GPU visible",
        status == cudaSuccess ? "the driver shows none" : cudaGetErrorString(status)));
  if (options.ordinal < 0 || options.ordinal >= count)
    throw UserError(fmt::format("there is no GPU {}: this machine shows {}, numbered from 0",
                                options.ordinal, count));
  return std::make_unique<CudaDeviceImpl>(options.ordinal);
}

int cuda_device_count() {
  cudaError_t status = cudaSuccess;
  const int visible = visible_gpus(status);
  int usable = 0;
  for (int ordinal = 0; ordinal < visible; ++ordinal)
    usable += attribute(cudaDevAttrComputeCapabilityMajor, ordinal) >= kMinimumMajor ? 1 : 0;
  return usable;
}

}  // namespace megatrain
