#include "launcher/session/measure/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>

#include "core/base/bfloat16.h"
#include "core/store/host_arena.h"

namespace megatrain::launcher {

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::vector<double> seconds_of_calls(std::span<const Repeated> calls,
                                     const std::function<void()>& wait) {
  const auto round = [&](const Repeated& call, Index times) {
    const double begin = seconds_now();
    for (Index i = 0; i < times; ++i) call.enqueue();
    wait();
    return seconds_now() - begin;
  };
  constexpr std::size_t kRounds = 7;
  std::vector<Index> times(calls.size(), 1);
  for (std::size_t c = 0; c < calls.size(); ++c) {
    (void)round(calls[c], 1);  // warms up
    while (round(calls[c], times[c]) < calls[c].least_seconds / kRounds) times[c] *= 2;
  }
  std::vector<std::array<double, kRounds>> seconds(calls.size());
  for (std::size_t r = 0; r < kRounds; ++r)
    for (std::size_t c = 0; c < calls.size(); ++c) seconds[c][r] = round(calls[c], times[c]);
  std::vector<double> medians;
  for (std::size_t c = 0; c < calls.size(); ++c) {
    std::ranges::sort(seconds[c]);
    medians.push_back(seconds[c][kRounds / 2] / static_cast<double>(times[c]));
  }
  return medians;
}

double seconds_a_call(const std::function<void()>& enqueue, const std::function<void()>& wait,
                      double least_seconds) {
  return seconds_of_calls(std::array{Repeated{enqueue, least_seconds}}, wait).front();
}

Scratch::Scratch(Device& device, Stream& stream, Index bytes) : memory_(device.allocate(bytes)) {
  constexpr Index kPattern = Index{1} << 20;
  ThreadPool one(1);
  const HostArena pattern("measurement", kPattern, device, one);
  // Random numbers as those of training are: what toggles fewer bits takes less power, and a GPU
  // would multiply it faster. Pairs of bf16 read as fp32 are as large.
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same in every run
  std::normal_distribution<float> normal(0, 0.02F);
  auto* const numbers = reinterpret_cast<bfloat16*>(pattern.data());
  for (Index i = 0; i < kPattern / 2; ++i) numbers[i] = to_bfloat16(normal(random));
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
