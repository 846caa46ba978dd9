#include "core/model/config.h"

#include <fmt/format.h>

namespace megatrain {

namespace {

void at_least(std::string_view what, Index value, Index minimum) {
  if (value < minimum)
    throw UserError(fmt::format("model: {} is {}, but must be at least {}", what, value, minimum));
}

void refuse_unless(bool condition, std::string_view what) {
  if (!condition) throw UserError(fmt::format("model: {}", what));
}

void validate_rope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.kind == RopeKind::none) return;
  refuse_unless(
      config.head_dim % 2 == 0,
      fmt::format("head_dim is {}, but rotary positions need an even one", config.head_dim));
  refuse_unless(!config.learned_positions, "rotary and learned positions exclude one another");
  refuse_unless(rope.theta > 1, fmt::format("rope theta is {}, but must be above 1", rope.theta));
  if (rope.kind == RopeKind::plain) return;
  refuse_unless(rope.factor >= 1,
                fmt::format("rope factor is {}, but must be at least 1", rope.factor));
  if (rope.kind == RopeKind::linear) return;
  at_least("rope original_max_position_embeddings", rope.original_max_positions, 0);
  if (rope.kind == RopeKind::llama3) {
    refuse_unless(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor,
                  fmt::format("rope high_freq_factor ({}) must be above low_freq_factor ({}), and "
                              "both above 0",
                              rope.high_freq_factor, rope.low_freq_factor));
    return;
  }
  refuse_unless(rope.beta_slow > 0 && rope.beta_fast >= rope.beta_slow,
                fmt::format("rope beta_fast ({}) must be at least beta_slow ({}), and both above 0",
                            rope.beta_fast, rope.beta_slow));
  refuse_unless(rope.attention_factor.value_or(1) > 0,
                fmt::format("rope attention_factor is {}, but must be above 0",
                            rope.attention_factor.value_or(1)));
}

}  // namespace

void validate(const ModelConfig& config) {
  at_least("vocabulary size", config.vocabulary, 1);
  at_least("hidden size", config.hidden, 1);
  at_least("number of layers", config.layers, 1);
  at_least("number of attention heads", config.heads, 1);
  at_least("number of key/value heads", config.kv_heads, 1);
  at_least("head_dim", config.head_dim, 1);
  at_least("intermediate size", config.intermediate, 1);
  at_least("max_position_embeddings", config.max_positions, 1);
  // Products below are used unchecked everywhere else.
  const Index widest =
      checked_mul(checked_add(config.heads, checked_mul(2, config.kv_heads)), config.head_dim);
  for (const Index rows : {config.vocabulary, widest, checked_mul(2, config.intermediate),
                           config.max_positions, config.layers})
    checked_mul(checked_mul(rows, config.hidden), Index{64});

  refuse_unless(config.vocabulary <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("vocabulary size {} does not fit 32-bit token ids", config.vocabulary));
  refuse_unless(config.heads % config.kv_heads == 0,
                fmt::format("{} attention heads are not a multiple of {} key/value heads",
                            config.heads, config.kv_heads));
  refuse_unless(config.norm_eps > 0,
                fmt::format("the norms' epsilon is {}, but must be above 0", config.norm_eps));
  refuse_unless(config.initializer_range >= 0 && config.initializer_range < 1e6,
                fmt::format("initializer_range is {}, but must be a finite number not below 0",
                            config.initializer_range));
  refuse_unless(
      config.windows.empty() || static_cast<Index>(config.windows.size()) == config.layers,
      fmt::format("{} attention windows for {} layers", config.windows.size(), config.layers));
  for (const Index window : config.windows) at_least("an attention window", window, 0);
  validate_rope(config);
}

}  // namespace megatrain
