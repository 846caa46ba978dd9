#include "core/device/cpu/tiny_numbers.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace megatrain {

namespace {

#if defined(__SSE2__)
constexpr std::uint64_t kFlush = 0x8000 | 0x0040;  // results, operands
std::uint64_t control() { return _mm_getcsr(); }
void set_control(std::uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#elif defined(__aarch64__)
constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
std::uint64_t control() {
  std::uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
void set_control(std::uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
constexpr std::uint64_t kFlush = 0;
std::uint64_t control() { return 0; }
void set_control(std::uint64_t /*bits*/) {}
#endif

}  // namespace

void flush_tiny_numbers() { set_control(control() | kFlush); }

KeptTinyNumbers::KeptTinyNumbers() : before_(control()) { set_control(before_ & ~kFlush); }

KeptTinyNumbers::~KeptTinyNumbers() { set_control(before_); }

}  // namespace megatrain
