#pragma once
/// @file
/// Pseudo-random bits as a pure function of a counter.

#include <cstdint>

namespace megatrain {

/// The increment of SplitMix64: odd, so that its multiples stay distinct.
constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15U;

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection that scatters its input.
constexpr std::uint64_t scatter(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace megatrain
