#include "core/train/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace megatrain {

namespace {

double seconds_now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index total = 0;
  Index resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

Trainer::Trainer(Engine& engine, const Model& model, const TokenSource& data,
                 const TokenSource* evaluation, const TrainOptions& options, TrainState state)
    : engine_(engine),
      model_(model),
      evaluation_(evaluation),
      options_(options),
      state_(state),
      loader_(engine.plan(Purpose::train).choices, model.config(), data, options.seed,
              state.samples, options.share),
      flops_per_token_(
          // Of all parts, which see the same tokens.
          static_cast<double>(model.partition().count) *
          model_flops_per_token(model, engine.plan(Purpose::train).choices.micro_batch.sequence)) {
  engine_.set_applied_steps(state.applied);
}

StepMetrics Trainer::step(Trace* trace) {
  const double begin = seconds_now();
  Batch batch = loader_.next();
  const auto valid_tokens =
      static_cast<Index>(engine_.sum_over_ranks(static_cast<double>(batch.valid_tokens)));
  batch.inputs.scale = token_scale(valid_tokens);
  const UpdateRule rule{options_.adamw, options_.schedule.at(state_.step), options_.max_norm};
  const StepResult result = engine_.train_step(batch.inputs, rule, trace);

  ++state_.step;
  state_.samples = loader_.samples_drawn();
  state_.applied = engine_.applied_steps();
  state_.tokens += valid_tokens;
  const bool skipped = !result.decision.apply;
  state_.skipped += skipped ? 1 : 0;
  state_.skipped_in_a_row = skipped ? state_.skipped_in_a_row + 1 : 0;
  const double loss = valid_tokens > 0 ? result.loss_sum / static_cast<double>(valid_tokens) : 0;
  if (!skipped) {
    state_.last_loss = loss;
    state_.last_norm = result.decision.norm;
  }
  if (options_.most_skips_in_a_row > 0 && state_.skipped_in_a_row >= options_.most_skips_in_a_row)
    throw Error(
        fmt::format("the gradient was not finite in {} steps in a row; no state was "
                    "changed since step {}. Lower --lr, or look for damaged data",
                    state_.skipped_in_a_row, state_.step - state_.skipped_in_a_row));

  StepMetrics metrics;
  metrics.step = state_.step;
  metrics.tokens = state_.tokens;
  metrics.loss = loss;
  metrics.grad_norm = result.decision.norm;
  metrics.lr = rule.lr;
  metrics.skipped = skipped;
  metrics.seconds = seconds_now() - begin;
  const auto tokens = static_cast<double>(engine_.plan(Purpose::train).choices.step_tokens() *
                                          options_.share.ranks);
  metrics.tokens_per_second = tokens / metrics.seconds;
  metrics.model_flops_per_second = flops_per_token_ * metrics.tokens_per_second;
  metrics.host_bytes = resident_bytes();
  metrics.device_bytes = engine_.device_bytes();
  return metrics;
}

std::optional<EvaluationMetrics> Trainer::evaluate(const std::function<bool()>& stop) {
  require(evaluation_ != nullptr, "evaluation has data");
  const Choices& choices = engine_.plan(Purpose::evaluate).choices;
  Index count = evaluation_->samples();
  if (options_.evaluate_sequences > 0) count = std::min(count, options_.evaluate_sequences);
  EvaluationMetrics metrics;
  metrics.step = state_.step;
  double sum = 0;
  const Index sequences = choices.step_sequences() * options_.share.ranks;
  for (Index first = 0; first < count; first += sequences) {
    if (stop()) return std::nullopt;
    const Batch batch =
        evaluation_batch(choices, model_.config(), *evaluation_, first, options_.share);
    for (const float loss : engine_.evaluate(batch.inputs)) sum += static_cast<double>(loss);
    metrics.tokens += batch.valid_tokens;
  }
  sum = engine_.sum_over_ranks(sum);
  metrics.tokens = static_cast<Index>(engine_.sum_over_ranks(static_cast<double>(metrics.tokens)));
  metrics.loss = metrics.tokens > 0 ? sum / static_cast<double>(metrics.tokens) : 0;
  if (state_.best_evaluation_step == 0 || metrics.loss < state_.best_evaluation) {
    state_.best_evaluation = metrics.loss;
    state_.best_evaluation_step = state_.step;
  }
  state_.evaluation_due = false;
  return metrics;
}

void Trainer::save(Saver& saver, bool ending) {
  if (StateReader* reader = saver.begin(state_, ending)) engine_.snapshot(*reader);
}

void Trainer::run(MetricsSink& sink, const std::function<bool()>& stop,
                  const std::function<Trace*(Index step)>& trace, Saver* saver) {
  const auto evaluate_if_due = [&] {
    if (!state_.evaluation_due) return;
    if (const auto metrics = evaluate(stop)) sink.evaluation(*metrics);
  };
  // Where the run before this one was stopped; this one may have no held-out data.
  state_.evaluation_due = state_.evaluation_due && evaluation_ != nullptr;
  evaluate_if_due();
  const auto save_if_due = [&](bool ending) {
    if (saver != nullptr) save(*saver, ending);
  };
  bool ending = state_.step >= options_.steps || stop();
  if (ending) save_if_due(ending);
  while (!ending) {
    sink.step(step(trace ? trace(state_.step + 1) : nullptr));
    const bool last = state_.step == options_.steps;
    const bool due = options_.evaluate_every > 0 && state_.step % options_.evaluate_every == 0;
    state_.evaluation_due = evaluation_ != nullptr && (due || last);
    evaluate_if_due();
    ending = last || stop();
    save_if_due(ending);  // after the evaluation, whose result belongs to the state
  }
  engine_.flush();
  engine_.finish_snapshot();
}

}  // namespace megatrain
