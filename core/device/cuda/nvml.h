#pragma once
/// @file
/// The driver's count of a GPU's memory, through NVML found at run time: machines without it work.

#include <memory>
#include <optional>
#include <string>

#include "core/base/types.h"

namespace megatrain {

class Nvml {
 public:
  /// @param pci_bus_id  as cudaDeviceGetPCIBusId writes it
  /// @return nullptr when the library, the GPU or its memory count is not to be had
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Bytes of the GPU's memory in use by all processes; nothing when the query fails.
  [[nodiscard]] std::optional<Index> used_bytes() const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace megatrain
