#pragma once
/// @file
/// How fast this machine is at what a step does.

#include <filesystem>

#include "core/base/thread_pool.h"
#include "core/plan/rates.h"
#include "launcher/session/machine.h"

namespace megatrain::launcher {

/// Tokens of a micro-batch that keep such a device busy.
constexpr Index measured_tokens(DeviceKind kind) { return kind == DeviceKind::cuda ? 8192 : 1024; }

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

/// Bytes/s of direct writes into a file of `folder`, which goes afterwards. Takes some seconds and
/// 2 GiB of disk at most. @throws UserError when it cannot be written
double measure_disk(const std::filesystem::path& folder);

/// Every rate that predictions divide by.
/// @param folder  on the disk that checkpoints will go to
Rates measure_rates(Machine& machine, const ModelConfig& config, Index tokens, ThreadPool& pool,
                    const std::filesystem::path& folder);

}  // namespace megatrain::launcher
