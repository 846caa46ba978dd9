#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "core/base/scatter.h"
#include "core/model/model.h"

namespace megatrain {

namespace {

/// FNV-1a, so that every tensor has a sequence of its own.
std::uint64_t hash_name(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

/// Two independent standard normal values of pair number `pair` of the sequence `key`.
struct NormalPair {
  float first, second;
};
NormalPair normal_pair(std::uint64_t key, std::uint64_t pair) {
  const std::uint64_t bits = scatter(key + (pair + 1) * kGoldenRatio);
  // (0, 1], so that the logarithm is finite, and [0, 1).
  const float radius_bits = (static_cast<float>(bits >> 40) + 1) * 0x1p-24F;
  const float turn = static_cast<float>(bits & 0xffffffU) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * std::log(radius_bits));
  const float angle = 2.0F * std::numbers::pi_v<float> * turn;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Elements [first, first + values.size()) of the whole parameter.
void whole_values(const ParamDesc& param, std::uint64_t seed, Index first,
                  std::span<float> values) {
  if (param.init != Init::normal) {
    std::ranges::fill(values, param.init == Init::ones ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t key = scatter(scatter(seed) ^ hash_name(param.name));
  const auto std_deviation = static_cast<float>(param.init_std);
  // Pairs are numbered from the tensor's start, so a slice may begin in the middle of one.
  const Index end = first + static_cast<Index>(values.size());
  for (Index element = first; element < end;) {
    const NormalPair pair = normal_pair(key, static_cast<std::uint64_t>(element / 2));
    float* out = values.data() + (element - first);
    if (element % 2 == 0) *out++ = std_deviation * pair.first;
    if (element / 2 * 2 + 1 < end) *out = std_deviation * pair.second;
    element = element / 2 * 2 + 2;
  }
}

}  // namespace

void initial_values(const ParamDesc& param, std::uint64_t seed, Index first,
                    std::span<float> values) {
  std::ranges::fill(values, 0.0F);
  param.for_each_run(first, static_cast<Index>(values.size()), [&](const PartRun& run) {
    whole_values(param, seed, run.whole,
                 values.subspan(static_cast<std::size_t>(run.part - first),
                                static_cast<std::size_t>(run.count)));
  });
}

}  // namespace megatrain
