#pragma once
/// @file
/// The instruction sets that vectorised kernels are compiled for; the best is chosen at run time.
/// Include before Highway. The sets left out either add nothing to fp32 loops but compile time,
/// or have scalable vectors, which cannot live in the arrays that register blocks need.

#define HWY_DISABLED_TARGETS                                                                 \
  ((HWY_AVX3 - 1) | HWY_SSE4 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   HWY_RVV)
