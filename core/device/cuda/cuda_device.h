#pragma once
/// @file
/// The CUDA device as CUDA code sees it. Includes no CUDA header, so that host files may use it.

#include "core/device/device.h"

struct CUstream_st;

namespace megatrain {

/// A stream of the CUDA device; it shares no implicit order with the default stream.
class CudaStream : public Stream {
 public:
  /// cudaStream_t, for launches and library calls.
  [[nodiscard]] virtual CUstream_st* handle() const = 0;
};

/// What kernels and libraries need to know of a GPU.
struct CudaProperties {
  int ordinal = 0;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  Index shared_memory_per_block = 0;  ///< bytes, with the opt-in for dynamic shared memory
};

/// Where reserve_bytes() comes from. Either is read when it is asked for, so that kernels and
/// handles that were loaded since count; only the first CudaDevice of a process sees its context.
enum class ReserveSource : std::uint8_t {
  nvml,         ///< the driver's count of this GPU's memory, before and after
  runtime_info  ///< cudaMemGetInfo: the base context is counted as used by others
};

class CudaDevice : public Device {
 public:
  [[nodiscard]] virtual const CudaProperties& properties() const = 0;
  /// Makes this GPU the current one of the calling host thread. Every call of Device, Stream and
  /// Event does so by itself; code that calls a CUDA library directly must do it.
  virtual void make_current() const = 0;
  [[nodiscard]] virtual ReserveSource reserve_source() const = 0;
};

/// Throws Error with the CUDA error of a launch that was just made, when there is one.
/// @param what  the op, for the message
void check_launch(std::string_view what);

}  // namespace megatrain
