#include "core/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/scatter.h"
#include "core/train/batch.h"

namespace megatrain {

namespace {

/// Uniform in [0, 1) from (seed, position).
double uniform(std::uint64_t seed, Index position) {
  const std::uint64_t x = scatter(seed + kGoldenRatio * (static_cast<std::uint64_t>(position) + 1));
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          Index position) {
  const auto best = std::ranges::max_element(logits);
  if (options.temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::ranges::sort(order, likelier);
  if (options.top_k > 0 && options.top_k < static_cast<Index>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));
  std::vector<double> weights;
  double total = 0;
  for (const std::int32_t id : order) {
    weights.push_back(std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)] - *best) /
                               options.temperature));
    total += weights.back();
  }
  // The nucleus: the fewest likeliest tokens that hold top_p of the mass.
  double mass = 0;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || mass < options.top_p * total))
    mass += weights[kept++];
  double left = uniform(options.seed, position) * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

std::vector<std::int32_t> generate(Engine& engine, const Model& model,
                                   std::span<const std::int32_t> prompt,
                                   const SamplingOptions& options,
                                   const std::function<void(std::int32_t)>& each) {
  if (prompt.empty()) throw UserError("a prompt needs at least one token");
  const Choices& choices = engine.plan(Purpose::generate).choices;
  const Index length = choices.micro_batch.sequence;
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::vector<std::int32_t> fresh;
  for (Index n = 0; n < options.most_tokens; ++n) {
    const Index count = std::min(length, static_cast<Index>(text.size()));
    std::vector<std::int32_t> window(static_cast<std::size_t>(length + 1), 0);
    std::copy(text.end() - count, text.end(), window.begin());
    Batch batch = make_batch(choices, model.config(), window);
    batch.inputs.position = count - 1;
    const std::int32_t token =
        sample_token(engine.logits(batch.inputs), options, static_cast<Index>(text.size()));
    if (std::ranges::find(options.stop, token) != options.stop.end()) break;
    text.push_back(token);
    fresh.push_back(token);
    if (each) each(token);
  }
  return fresh;
}

}  // namespace megatrain
