#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/model/config.h"

namespace megatrain {

namespace {

/// Angles a position of each pair, and what cosine and sine are multiplied by.
struct Frequencies {
  std::vector<double> angles;
  double attention_factor = 1;
};

Index original_positions(const ModelConfig& config) {
  return config.rope.original_max_positions > 0 ? config.rope.original_max_positions
                                                : config.max_positions;
}

std::vector<double> plain_angles(const ModelConfig& config) {
  std::vector<double> angles(static_cast<std::size_t>(config.head_dim / 2));
  for (std::size_t i = 0; i < angles.size(); ++i)
    angles[i] = std::pow(config.rope.theta, -2.0 * double(i) / double(config.head_dim));
  return angles;
}

/// Long wavelengths are slowed down by `factor`, short ones kept, those between blended.
void llama3(const ModelConfig& config, Frequencies& f) {
  const RopeConfig& rope = config.rope;
  const auto original = static_cast<double>(original_positions(config));
  for (double& angle : f.angles) {
    const double turns = original * angle / (2 * std::numbers::pi);  // over the original context
    if (turns < rope.low_freq_factor) {
      angle /= rope.factor;
    } else if (turns <= rope.high_freq_factor) {
      const double smooth =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      angle *= (1 - smooth) / rope.factor + smooth;
    }
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// YaRN (Peng et al. 2023, section 3.2-3.4) with the switches that transformers gives it.
void yarn(const ModelConfig& config, Frequencies& f) {
  const RopeConfig& rope = config.rope;
  const auto dim = static_cast<double>(config.head_dim);
  const auto original = static_cast<double>(original_positions(config));

  // The pair that turns `rotations` times over the original context; a real number.
  const auto correction = [&](double rotations) {
    return dim * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // a step, not a division by zero

  for (std::size_t i = 0; i < f.angles.size(); ++i) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    f.angles[i] *= ramp / rope.factor + (1 - ramp);
  }
  if (rope.attention_factor) {
    f.attention_factor = *rope.attention_factor;
  } else if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    f.attention_factor =
        yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  } else {
    f.attention_factor = yarn_mscale(rope.factor, 1);
  }
}

Frequencies frequencies(const ModelConfig& config) {
  Frequencies f{.angles = plain_angles(config)};
  switch (config.rope.kind) {
    case RopeKind::none:
    case RopeKind::plain:
      break;
    case RopeKind::linear:
      for (double& angle : f.angles) angle /= config.rope.factor;
      break;
    case RopeKind::llama3:
      llama3(config, f);
      break;
    case RopeKind::yarn:
      yarn(config, f);
      break;
  }
  return f;
}

}  // namespace

RopeTables rope_tables(const ModelConfig& config, Index positions) {
  if (config.rope.kind == RopeKind::none) return {};
  const Frequencies f = frequencies(config);
  RopeTables tables;
  tables.cosine.reserve(static_cast<std::size_t>(positions) * f.angles.size());
  tables.sine.reserve(tables.cosine.capacity());
  for (Index position = 0; position < positions; ++position) {
    for (const double angle : f.angles) {
      tables.cosine.push_back(
          static_cast<float>(std::cos(double(position) * angle) * f.attention_factor));
      tables.sine.push_back(
          static_cast<float>(std::sin(double(position) * angle) * f.attention_factor));
    }
  }
  return tables;
}

}  // namespace megatrain
