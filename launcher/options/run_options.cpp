#include "launcher/options/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/optim/adamw.h"
#include "io/checkpoint/training_record.h"
#include "launcher/options/shared_tables.h"

namespace megatrain::launcher {

namespace {

constexpr const char* kCheckpoints = "Checkpoints";
constexpr const char* kRanks = "Several ranks";

/// The highest learning rate that AdamW takes.
constexpr double kMostRate = 1e6;

std::vector<Option> checkpoint_table(CheckpointOptions& o) {
  return {
      {"save-every",
       kCheckpoints,
       "STEPS",
       "Save a checkpoint this often, and at the end; 0: only when SIGTERM or SIGUSR1 asks for one",
       &o.save_every,
       {},
       0.0},
      {"keep-last",
       kCheckpoints,
       "N",
       "Checkpoints that stay, the newest ones",
       &o.keep_last,
       {},
       1.0},
      {"keep-every",
       kCheckpoints,
       "STEPS",
       "Checkpoints of these steps stay too; 0: none",
       &o.keep_every,
       {},
       0.0},
      {"save-buffer", kCheckpoints, "SIZE",
       "Host memory that takes copies of states while they are written, so that updates need not "
       "wait for the disk; absent: what the plan leaves free",
       &o.save_buffer},
      {"save-rate",
       kCheckpoints,
       "SIZE",
       "Most bytes a second to write, where others need the disk too; absent: no limit",
       &o.save_rate,
       {},
       kSomeBytes},
      {"shard-size",
       kCheckpoints,
       "SIZE",
       "A file ends before the unit that would pass this size; absent: 16GiB",
       &o.shard_size,
       {},
       kSomeBytes},
      {"verify-saves", kCheckpoints, "", "Read every checkpoint again before it counts",
       &o.verify_saves},
      {"save-failure",
       kCheckpoints,
       "WHAT",
       "What a checkpoint that cannot be saved does to training",
       &o.save_failure,
       {"continue", "stop"}},
      {.name = "resume",
       .group = kCheckpoints,
       .value = "auto|none|FOLDER",
       .help = "Go on from a checkpoint; auto: from the newest in the run folder, if there is one",
       .target = &o.resume,
       .in_file = false},
      {.name = "accept-change",
       .group = kCheckpoints,
       .value = "NAME",
       .help = "Go on although this option differs from the checkpoint's (repeatable); 'numerics': "
               "although other bits come out",
       .target = &o.accept_change,
       .in_file = false},
  };
}

std::vector<Option> ranks_table(RunOptions& o) {
  constexpr double kLongest = 7.0 * 24 * 3600;
  return {
      {"tensor-parallel",
       kRanks,
       "RANKS",
       "Neighbouring ranks that compute each layer together (a tensor group): each has some of its "
       "heads, MLP columns and vocabulary, and all see the same tokens",
       &o.tensor_parallel,
       {},
       1.0},
      {"shard-group",
       kRanks,
       "RANKS",
       "Neighbouring ranks (or tensor groups) that hold the model once between them; groups of "
       "them "
       "are replicas. Absent: those of a node",
       &o.shard_group,
       {},
       0.0},
      {"check-replicas",
       kRanks,
       "STEPS",
       "Compare what replicas hold, and what all of a tensor group hold, this often; 0: never",
       &o.check_replicas,
       {},
       0.0},
      {"rank-timeout",
       kRanks,
       "SECONDS",
       "How long a step, or a rank that others wait for in it, may take before all give up",
       &o.rank_timeout,
       {},
       1.0,
       kLongest},
  };
}

/// Options that decide what is learned. What else decides bits is in the numerics key.
void mark_decisive(std::vector<Option>& table) {
  static constexpr std::string_view kNames[] = {
      "val-fraction", "steps",  "seq-len",          "batch-tokens",
      "lr",           "min-lr", "schedule",         "warmup",
      "clip",         "seed",   "weight-decay",     "beta1",
      "beta2",        "eps",    io::kMomentsOption, io::kMastersOption};
  for (Option& option : table)
    option.decisive = std::ranges::find(kNames, option.name) != std::end(kNames);
}

/// What `train` and `plan` share, in the order of the resolved configuration.
std::vector<Option> shared_table(RunOptions& o) {
  std::vector<Option> table = {
      model_option(o),
      {"data", kModel, "FILE", "Training data: .txt, .jsonl (a \"text\" a line) or .bin tokens",
       &o.data},
      {"val-data", kModel, "FILE", "Held-out data; not with --val-fraction", &o.val_data},
      {"val-fraction",
       kModel,
       "FRACTION",
       "Part of the samples that is held out instead (the last ones)",
       &o.val_fraction,
       {},
       0.0,
       {},
       1.0},
      {"val-every",
       kModel,
       "STEPS",
       "Evaluate this often; 0: at the end only",
       &o.val_every,
       {},
       0.0},
      {"steps", kBatch, "STEPS", "Optimizer updates", &o.steps, {}, 1.0},
  };
  append(table, batch_table(o));
  append(table,
         {
             {"lr", kOptimizer, "RATE", "Peak learning rate", &o.lr, {}, 0.0, kMostRate},
             {"min-lr", kOptimizer, "RATE", "Learning rate at the last step", &o.min_lr, {}, 0.0},
             {"schedule",
              kOptimizer,
              "NAME",
              "Course of the learning rate after warm-up",
              &o.schedule,
              {"cosine", "linear", "wsd", "constant"}},
             {"warmup", kOptimizer, "STEPS", "Steps of linear warm-up", &o.warmup, {}, 0.0},
             {"clip",
              kOptimizer,
              "NORM",
              "Largest global norm of the gradient; 0: no clipping",
              &o.clip,
              {},
              0.0},
             {"weight-decay",
              kOptimizer,
              "RATE",
              "AdamW's decay, on matrices only",
              &o.weight_decay,
              {},
              0.0},
             {"beta1",
              kOptimizer,
              "BETA",
              "AdamW's decay of the first moment",
              &o.beta1,
              {},
              0.0,
              {},
              1.0},
             {"beta2",
              kOptimizer,
              "BETA",
              "AdamW's decay of the second moment",
              &o.beta2,
              {},
              0.0,
              {},
              1.0},
             {"eps", kOptimizer, "EPS", "AdamW's epsilon", &o.eps, {}, kSmallestEps, 1.0},
         });
  append(table, state_table(o.machine));
  append(table, machine_table(o.machine));
  append(table, choice_table(o));
  append(table,
         {
             {"rates", kPlan, "FILE", "Rates that 'megatrain bench' measured; absent: assumed ones",
              &o.rates},
             {"out", kRun, "FOLDER",
              "Run folder, for metrics.jsonl (every step; a console that is no terminal shows "
              "about one a second), config.toml, numerics.key and model/",
              &o.out},
             {.name = "config",
              .group = kRun,
              .value = "FILE",
              .help = "TOML file with these options in table [train]; the command line wins",
              .target = &o.config,
              .in_file = false},
             {"seed", kRun, "N", "Seed of initial weights and of the order of the data", &o.seed},
             peak_option(o, "the GPU's data sheet, or measured products"),
             {"trace", kRun, "FILE",
              "Write a Chrome trace of the third step; rank N of several adds .rankN to the name",
              &o.trace},
         });
  append(table, checkpoint_table(o.checkpoints));
  append(table, ranks_table(o));
  mark_decisive(table);
  return table;
}

/// Puts requirements of one command into the shared table.
void require_options(std::vector<Option>& table, std::initializer_list<std::string_view> names) {
  for (Option& option : table)
    for (const std::string_view name : names)
      if (option.name == name) option.required = true;
}

/// Says of options that a command takes, so that configurations can be shared, but has no use for.
/// @param names  of options or of groups
void mark_unneeded(std::vector<Option>& table, std::initializer_list<std::string_view> names) {
  for (Option& option : table)
    for (const std::string_view name : names)
      if (option.name == name || option.group == name)
        option.help += "; taken, but a plan does not need it";
}

}  // namespace

std::vector<Option> train_table(RunOptions& options) {
  std::vector<Option> table = shared_table(options);
  require_options(table, {"data", "out"});
  table.push_back({.name = "overwrite",
                   .group = kRun,
                   .value = "",
                   .help = "Replace an earlier run in the run folder",
                   .target = &options.overwrite,
                   .in_file = false});
  return table;
}

std::vector<std::pair<std::string, std::string>> decisive_options(const RunOptions& options) {
  RunOptions copy = options;
  std::vector<std::pair<std::string, std::string>> values;
  for (const Option& option : train_table(copy)) {
    if (!option.decisive) continue;
    std::string text;
    for (const std::string& one : texts(option).value_or(std::vector<std::string>{}))
      text += (text.empty() ? "" : " ") + one;
    values.emplace_back(option.name, text);
  }
  return values;
}

std::vector<Option> plan_table(RunOptions& options) {
  std::vector<Option> table = shared_table(options);
  mark_unneeded(table,
                {"out", "seed", "peak", "trace", "rank-timeout", "check-replicas", kCheckpoints});
  table.push_back({.name = "ranks",
                   .group = kRanks,
                   .value = "N",
                   .help = "Plan a run of so many ranks, a GPU each, as one of them; absent: of a "
                           "tensor group",
                   .target = &options.ranks,
                   .least = 1.0,
                   .in_file = false});
  table.push_back({.name = "json",
                   .group = kRun,
                   .value = "",
                   .help = "Print JSON",
                   .target = &options.json,
                   .in_file = false});
  return table;
}

}  // namespace megatrain::launcher
