#pragma once
/// @file
/// A short measurement of matrix products, for runs that want a number to be compared with.

#include "launcher/session/machine.h"

namespace megatrain::launcher {

/// A product of an MLP: [tokens, hidden] by [hidden, inner].
struct ProductShape {
  Index tokens = 0;
  Index hidden = 0;
  Index inner = 0;
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(hidden) *
           static_cast<double>(inner);
  }
};

/// What measure_peak multiplies: the model's MLP, on the CPU device cut down to 1 GFLOP a product.
ProductShape peak_shape(DeviceKind kind, const ModelConfig& config);

/// FLOP/s of matrix products on this machine, for MFU where there is no data sheet. Takes some
/// tenths of a second at most.
double measure_peak(Machine& machine, const ModelConfig& config);

}  // namespace megatrain::launcher
