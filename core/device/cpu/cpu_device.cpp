#include "core/device/cpu/cpu_device.h"

#include "core/device/cpu/simd_targets.h"
// After the targets.
#include <hwy/highway.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/device/cpu/cpu_stream.h"

namespace megatrain {

namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unnamed processor";  // ARM kernels give no name
}

/// Memory that this process may use: the machine's, or the cgroup's limit when that is less.
Index usable_memory() {
  const Index machine = Index{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    // "max" does not parse as a number: no limit.
    if (Index limit = 0; file >> limit && limit > 0 && limit < machine) return limit;
  }
  return machine;
}

/// The instruction set that oneDNN's kernels use; not what the processor has when a limit is set.
std::string isa_name() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa {:#x}", static_cast<unsigned>(isa));
  }
}

/// The library behind the products and the one behind all other loops, their versions and the
/// instruction sets that they chose at run time: each of these may change bits.
std::string numerics() {
  const dnnl_version_t* dnnl = dnnl_version();
  // The best comes first.
  const std::string target = hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
  return fmt::format("cpu oneDNN {}.{}.{} {}, Highway {}.{}.{} {}", dnnl->major, dnnl->minor,
                     dnnl->patch, isa_name(), HWY_MAJOR, HWY_MINOR, HWY_PATCH, target);
}

class CpuMemory final : public DeviceMemory {
 public:
  explicit CpuMemory(Index bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    data_ = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED)
      throw UserError(fmt::format(
          "cannot allocate {} of memory for the CPU device: {}; use a smaller --device-memory",
          format_bytes(bytes), std::strerror(errno)));
    // Large pages where the system grants them: fewer address misses in matrix products.
    madvise(data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  }
  ~CpuMemory() override {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;

  [[nodiscard]] std::byte* data() const override { return static_cast<std::byte*>(data_); }
  [[nodiscard]] Index bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  Index bytes_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {
    info_.kind = DeviceKind::cpu;
    info_.name = processor_name();
    info_.total_memory = usable_memory();
    info_.numerics = numerics();
    info_.graphs = true;
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return std::make_unique<cpu::QueueStream>(*this, name, threads_);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<cpu::CpuEvent>();
  }
  [[nodiscard]] std::unique_ptr<TimedEvent> make_timed_event() override {
    return std::make_unique<cpu::CpuEvent>();
  }
  [[nodiscard]] std::unique_ptr<DeviceMemory> allocate(Index bytes) override {
    require(bytes >= 0, "an allocation of a negative size");
    // Linux may promise more than there is and kill the process later.
    if (const Index free = free_bytes(); bytes > free)
      throw UserError(
          fmt::format("cannot allocate {} of memory for the CPU device: {} are free; use a smaller "
                      "--device-memory",
                      format_bytes(bytes), format_bytes(free)));
    return std::make_unique<CpuMemory>(bytes);
  }
  [[nodiscard]] std::unique_ptr<HostRegistration> register_host(void* /*data*/,
                                                                Index /*bytes*/) override {
    return std::make_unique<HostRegistration>();
  }
  [[nodiscard]] Index free_bytes() const override { return available_host_memory().available; }
  [[nodiscard]] Index reserve_bytes() const override { return 0; }

 private:
  int threads_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  if (options.threads < 0)
    throw UserError(
        fmt::format("the CPU device needs at least 1 thread, not {} (0 means one per "
                    "usable core)",
                    options.threads));
  return std::make_unique<CpuDevice>(options.threads > 0 ? options.threads : available_cores());
}

}  // namespace megatrain
