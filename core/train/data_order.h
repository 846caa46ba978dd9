#pragma once
/// @file
/// The order of training samples: a function of (seed, sample counter), so that a checkpoint holds
/// the counter and nothing else.

#include <cstdint>

#include "core/base/types.h"

namespace megatrain {

/// Which of `samples` samples comes at place `counter` of a training run. Each epoch (stretch of
/// `samples` counters) is a permutation of its own.
/// @param counter  samples drawn before, >= 0
/// @param samples  >= 1
Index sample_at(std::uint64_t seed, Index counter, Index samples);

}  // namespace megatrain
