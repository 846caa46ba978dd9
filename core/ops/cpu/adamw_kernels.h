#pragma once
/// @file
/// The implementations of adamw_update, one an instruction set; for
/// the host's update, the CPU device and tests.

#include <vector>

#include "core/ops/adamw.h"

namespace megatrain::ops::cpu {

using AdamWFunction = void (*)(const AdamWSlice&, const AdamWCoefficients&);

struct AdamWKernel {
  const char* name;
  AdamWFunction function;
};

/// Scalar code for any machine; the reference for the bits of all the others.
void adamw_update_portable(const AdamWSlice& slice, const AdamWCoefficients& coefficients);

/// Every implementation that this machine runs, the best first, "portable" last.
std::vector<AdamWKernel> adamw_kernels();

/// The first of them.
const AdamWKernel& best_adamw_kernel();

}  // namespace megatrain::ops::cpu
