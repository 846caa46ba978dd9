#include "core/device/cuda/nvml.h"

#include <dlfcn.h>

namespace megatrain {

namespace {

// The few declarations that we use of NVML's stable C interface; 0 is its success.
using Status = int;
using DeviceHandle = void*;
struct MemoryInfo {
  unsigned long long total, free, used;
};
using Init = Status (*)();
using Shutdown = Status (*)();
using GetHandle = Status (*)(const char*, DeviceHandle*);
using GetMemoryInfo = Status (*)(DeviceHandle, MemoryInfo*);

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  bool initialised = false;
  DeviceHandle device = nullptr;
  Shutdown shutdown = nullptr;
  GetMemoryInfo memory_info = nullptr;

  ~Library() {
    if (initialised && shutdown != nullptr) shutdown();
    if (handle != nullptr) dlclose(handle);
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id) {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) return nullptr;
  const auto init = symbol<Init>(library->handle, "nvmlInit_v2");
  const auto get_handle = symbol<GetHandle>(library->handle, "nvmlDeviceGetHandleByPciBusId_v2");
  library->shutdown = symbol<Shutdown>(library->handle, "nvmlShutdown");
  library->memory_info = symbol<GetMemoryInfo>(library->handle, "nvmlDeviceGetMemoryInfo");
  if (init == nullptr || get_handle == nullptr || library->memory_info == nullptr) return nullptr;
  if (init() != 0) return nullptr;
  library->initialised = true;
  if (get_handle(pci_bus_id.c_str(), &library->device) != 0) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(library)));
  if (!nvml->used_bytes()) return nullptr;
  return nvml;
}

std::optional<Index> Nvml::used_bytes() const {
  MemoryInfo info{};
  if (library_->memory_info(library_->device, &info) != 0) return std::nullopt;
  return static_cast<Index>(info.used);
}

}  // namespace megatrain
