#pragma once
/// @file
/// A short busy wait before a thread goes to sleep: a wake-up through the kernel costs more than
/// most small ops.

#include <chrono>

namespace megatrain {

/// Tells the processor that the thread is busy waiting.
inline void relax_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long a waiting thread stays awake: about what a sleep and a wake-up would cost. Longer
/// would take a core from a thread that has work.
inline constexpr std::chrono::microseconds kSpinTime{5};

/// Polls `done` for at most kSpinTime; the last answer.
template <class Condition>
bool spin_until(const Condition& done) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    if (done()) return true;
    relax_processor();
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace megatrain
