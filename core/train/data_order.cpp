#include "core/train/data_order.h"

#include <bit>

#include "core/base/scatter.h"

namespace megatrain {

namespace {

/// One step of SplitMix64; unlike scatter() alone, it moves 0 too.
constexpr std::uint64_t mix(std::uint64_t x) { return scatter(x + kGoldenRatio); }

constexpr int kRounds = 6;

}  // namespace

Index sample_at(std::uint64_t seed, Index counter, Index samples) {
  require(counter >= 0 && samples >= 1, "sample_at: counter or samples out of range");
  const auto count = static_cast<std::uint64_t>(samples);
  const std::uint64_t epoch = static_cast<std::uint64_t>(counter) / count;
  const std::uint64_t key = mix(mix(seed) ^ epoch);
  // A Feistel network permutes [0, 4^half) whatever its round function is. Values outside
  // [0, samples) are permuted again until they land inside, which keeps it a permutation there;
  // the domain is below 4 x samples, so few walks are needed.
  const int half = (static_cast<int>(std::bit_width(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t value = static_cast<std::uint64_t>(counter) % count;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t scrambled =
          mix(key ^ mix(right + static_cast<std::uint64_t>(round) * 0xd1342543de82ef95U));
      const std::uint64_t next = left ^ (scrambled & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= count);
  return static_cast<Index>(value);
}

}  // namespace megatrain
