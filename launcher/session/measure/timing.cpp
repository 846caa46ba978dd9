#include "launcher/session/measure/timing.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "core/store/host_arena.h"

namespace megatrain::launcher {

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double seconds_a_call(const std::function<void()>& enqueue, const std::function<void()>& wait,
                      double least_seconds) {
  const auto round = [&](Index calls) {
    const double begin = seconds_now();
    for (Index i = 0; i < calls; ++i) enqueue();
    wait();
    return seconds_now() - begin;
  };
  (void)round(1);  // warms up
  constexpr std::size_t kRounds = 5;
  std::array<double, kRounds> seconds{};
  Index calls = 1;
  while ((seconds[0] = round(calls)) < least_seconds / kRounds) calls *= 2;
  for (std::size_t r = 1; r < kRounds; ++r) seconds[r] = round(calls);
  std::ranges::sort(seconds);
  return seconds[kRounds / 2] / static_cast<double>(calls);
}

Scratch::Scratch(Device& device, Stream& stream, Index bytes) : memory_(device.allocate(bytes)) {
  constexpr Index kPattern = Index{1} << 20;
  ThreadPool one(1);
  const HostArena pattern("measurement", kPattern, device, one);
  // Bytes with exponents near 1/100 in both types: every other one is 0x3C or 0xBC.
  for (Index i = 0; i < kPattern; ++i)
    pattern.data()[i] =
        static_cast<std::byte>(i % 2 == 0 ? i / 2 * 37 % 251 : (i % 6 == 1 ? 0xBC : 0x3C));
  for (Index at = 0; at < bytes; at += kPattern)
    stream.copy(memory_->data() + at, pattern.data(), std::min(kPattern, bytes - at));
  stream.synchronize();
}

Index Scratch::room(std::initializer_list<Index> pieces) {
  Index bytes = 0;
  for (const Index piece : pieces) bytes += round_up(piece, 256);
  return bytes;
}

std::byte* Scratch::take(Index bytes) {
  if (bytes == 0) return nullptr;
  std::byte* piece = memory_->data() + taken_;
  taken_ += round_up(bytes, 256);
  require(taken_ <= memory_->bytes(), "a measurement's memory is large enough");
  return piece;
}

}  // namespace megatrain::launcher
