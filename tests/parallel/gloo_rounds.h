#pragma once
/// @file
/// Some rounds of all collectives whose results depend on the order of additions.

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/engine/communicator.h"

namespace megatrain {

/// Runs ten rounds, `before(round)` before each. @returns a hash of the bits of all that came out
inline std::uint64_t testing_rounds(Communicator& communicator, Stream& stream,
                                    const std::function<void(int)>& before) {
  constexpr Index kSlice = 70001;  // odd, and more than one piece of a sum
  const Index whole_count = kSlice * communicator.size();
  std::vector<float> whole(static_cast<std::size_t>(whole_count));
  std::vector<float> slice(static_cast<std::size_t>(kSlice));
  std::uint64_t hash = 14695981039346656037U;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  std::uint32_t random = 1;
  for (int round = 0; round < 10; ++round) {
    before(round);
    for (Index i = 0; i < whole_count; ++i) {
      random = random * 1664525U + 1013904223U + static_cast<std::uint32_t>(communicator.rank());
      whole[static_cast<std::size_t>(i)] = static_cast<float>(static_cast<std::int32_t>(random)) *
                                           ((random >> 8) % 3 == 0 ? 1e-3F : 1.0F);
    }
    communicator.reduce_scatter(stream, whole.data(), slice.data(), kSlice);
    communicator.all_gather(stream, slice.data(), whole.data(), kSlice, DType::f32);
    communicator.all_reduce(stream, whole.data(), whole_count);
    communicator.broadcast(stream, whole.data(), kSlice, DType::f32, round % communicator.size());
    stream.synchronize();
    for (const float x : whole) add(std::bit_cast<std::uint32_t>(x));
    std::vector<double> sums{static_cast<double>(slice[0]), 0.1 * communicator.rank()};
    communicator.sum(sums);
    for (const double x : sums) add(std::bit_cast<std::uint64_t>(x));
  }
  return hash;
}

}  // namespace megatrain
