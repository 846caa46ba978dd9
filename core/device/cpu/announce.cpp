#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/thread_sanitizer.h"

namespace megatrain {

void announce_read([[maybe_unused]] const void* data, [[maybe_unused]] Index bytes) {
#if defined(MEGATRAIN_THREAD_SANITIZER)
  __tsan_read_range(const_cast<void*>(data), static_cast<unsigned long>(bytes));
#endif
}

void announce_write([[maybe_unused]] void* data, [[maybe_unused]] Index bytes) {
#if defined(MEGATRAIN_THREAD_SANITIZER)
  __tsan_write_range(data, static_cast<unsigned long>(bytes));
#endif
}

void announce_read([[maybe_unused]] const void* data, [[maybe_unused]] Index rows,
                   [[maybe_unused]] Index row_bytes, [[maybe_unused]] Index pitch_bytes) {
#if defined(MEGATRAIN_THREAD_SANITIZER)
  for (Index row = 0; row < rows; ++row)
    announce_read(static_cast<const char*>(data) + row * pitch_bytes, row_bytes);
#endif
}

void announce_write([[maybe_unused]] void* data, [[maybe_unused]] Index rows,
                    [[maybe_unused]] Index row_bytes, [[maybe_unused]] Index pitch_bytes) {
#if defined(MEGATRAIN_THREAD_SANITIZER)
  for (Index row = 0; row < rows; ++row)
    announce_write(static_cast<char*>(data) + row * pitch_bytes, row_bytes);
#endif
}

}  // namespace megatrain
