#include "core/optim/adamw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/ops/cpu/adamw_kernels.h"

namespace megatrain {

void validate(const AdamWOptions& options) {
  const auto check_beta = [](const char* which, double beta) {
    if (!(beta >= 0 && beta < 1))
      throw UserError(fmt::format("AdamW's {} must be in [0, 1), not {}", which, beta));
  };
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  if (!(options.eps >= kSmallestEps && options.eps <= 1))
    throw UserError(
        fmt::format("AdamW's eps must be in [{}, 1], not {}", kSmallestEps, options.eps));
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay)))
    throw UserError(fmt::format("AdamW's weight decay must be a finite number >= 0, not {}",
                                options.weight_decay));
}

AdamWCoefficients adamw_coefficients(const AdamWOptions& options, double lr, double clip,
                                     std::int64_t step, bool decays) {
  validate(options);
  require(step >= 1, "AdamW's first step is 1");
  require(std::isfinite(clip) && clip >= 0, "AdamW's clip factor must be finite and >= 0");
  if (!(lr >= 0 && lr <= 1e6))
    throw UserError(fmt::format("the learning rate must be in [0, 1e6], not {}", lr));
  const double decay = decays ? 1 - lr * options.weight_decay : 1.0;
  if (decay < 0)
    throw UserError(fmt::format(
        "learning rate {} x weight decay {} exceeds 1: every step would flip the weights' signs; "
        "lower one of them",
        lr, options.weight_decay));
  const auto t = static_cast<double>(step);
  AdamWCoefficients c;
  c.clip = static_cast<float>(clip);
  c.decay = static_cast<float>(decay);
  c.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  c.step_size = static_cast<float>(lr / (1 - std::pow(options.beta1, t)));
  c.inv_sqrt_bc2 = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
  c.eps = static_cast<float>(options.eps);
  return c;
}

void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients) {
  ops::cpu::best_adamw_kernel().function(slice, coefficients);
}

void adamw_update(const AdamWSlice& slice, const AdamWCoefficients& coefficients,
                  ThreadPool& pool) {
  pool.for_each(ceil_div(slice.count, kUpdatePiece), [&](Index piece) {
    const Index first = piece * kUpdatePiece;
    adamw_update(slice.part(first, std::min(kUpdatePiece, slice.count - first)), coefficients);
  });
}

const char* adamw_target() { return ops::cpu::best_adamw_kernel().name; }

}  // namespace megatrain
