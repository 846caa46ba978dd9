#pragma once
/// @file
/// How fast this machine is at what a step does.

#include "core/base/thread_pool.h"
#include "core/plan/rates.h"
#include "launcher/session/machine.h"

namespace megatrain::launcher {

/// Tokens of a micro-batch that keep such a device busy.
constexpr Index measured_tokens(DeviceKind kind) { return kind == DeviceKind::cuda ? 8192 : 1024; }

/// FLOP/s of the products of an MLP (forward, gradient of the input, gradient of the weights) on
/// `tokens` tokens. Takes some tenths of a second.
double measure_products(Machine& machine, const ModelConfig& config, Index tokens);

/// Every rate that predictions divide by.
Rates measure_rates(Machine& machine, const ModelConfig& config, Index tokens, ThreadPool& pool);

}  // namespace megatrain::launcher
