#include "launcher/session/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "io/byte_tokenizer.h"
#include "io/checkpoint/checksum.h"

namespace megatrain::launcher {

TrainOptions training_options(const RunOptions& o) {
  TrainOptions options;
  options.steps = o.steps;
  options.schedule = {.kind = parse_schedule(o.schedule),
                      .lr = o.lr,
                      .min_lr = o.min_lr,
                      .warmup = o.warmup,
                      .steps = o.steps};
  options.schedule.validate();
  options.adamw = {
      .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay};
  // The highest rate is refused now, not in the step that would reach it.
  (void)adamw_coefficients(options.adamw, o.lr, /*clip=*/1, /*step=*/1, /*decays=*/true);
  options.max_norm = o.clip;
  options.seed = o.seed;
  options.evaluate_every = o.val_every;
  return options;
}

bool evaluates(const RunOptions& options) {
  return options.val_fraction > 0 || !options.val_data.empty();
}

io::Dataset open_data(const RunOptions& options, const ModelSource& source, Console& console,
                      bool required) {
  if (options.val_every > 0 && !evaluates(options))
    throw UserError("--val-every needs held-out data: give --val-data or --val-fraction");
  io::DatasetOptions data;
  data.train.assign(options.data.begin(), options.data.end());
  data.train_required = required;
  data.validation.assign(options.val_data.begin(), options.val_data.end());
  data.validation_fraction = options.val_fraction;
  data.sequence = options.seq_len;
  data.vocabulary = source.config.vocabulary;
  data.text_refusal = io::refuse_bytes(source.side_files, source.config.vocabulary);
  io::Dataset opened = io::open_dataset(data);
  for (const std::string& warning : opened.warnings) console.warning(warning);
  return opened;
}

std::string content_mark(const TokenSource& data) {
  // As many as can be read in tenths of a second, however long they are.
  constexpr Index kTokens = Index{1} << 22;
  const Index most = std::clamp<Index>(kTokens / data.sequence(), 64, 4096);
  const Index samples = data.samples();
  const Index looks = std::min(most, samples);
  io::ChecksumStream sum;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.sequence()) + 1);
  for (Index i = 0; i < looks; ++i) {
    data.sample(looks == 1 ? 0 : i * (samples - 1) / (looks - 1), tokens);
    sum.add(std::as_bytes(std::span(tokens)));
  }
  return fmt::format("{} samples, {}", samples, io::to_text(sum.value()));
}

}  // namespace megatrain::launcher
