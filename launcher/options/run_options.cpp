#include "launcher/options/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/model/config.h"
#include "core/optim/adamw.h"
#include "core/plan/planner.h"
#include "io/checkpoint/training_record.h"

namespace megatrain::launcher {

namespace {

constexpr const char* kModel = "Model and data";
constexpr const char* kBatch = "Batch";
constexpr const char* kOptimizer = "Optimizer";
constexpr const char* kMachine = "Machine";
constexpr const char* kPlan = "Plan";
constexpr const char* kRun = "Run";
constexpr const char* kCheckpoints = "Checkpoints";
constexpr const char* kRanks = "Several ranks";
constexpr const char* kSampling = "Sampling";

/// Of a step. Beyond it lies a typing error, and the lists of the plan would fill the memory.
constexpr double kMostTokens = Index{1} << 28;

/// Of a size that cannot be nothing.
constexpr double kSomeBytes = 1;
/// The highest learning rate that AdamW takes.
constexpr double kMostRate = 1e6;

std::string model_help() {
  std::string text = "Hugging Face model folder, or a preset with random weights:";
  for (const std::string& name : preset_names()) text += ' ' + name;
  return text;
}

std::string force_help() {
  std::string text = "Fix a choice of the planner (repeatable):";
  for (const ForcedChoice& choice : forced_choices())
    text += fmt::format("\n{}={}: {}", choice.name, choice.values, choice.help);
  return text;
}

void append(std::vector<Option>& table, std::vector<Option> more) {
  for (Option& option : more) table.push_back(std::move(option));
}

std::vector<Option> machine_table(MachineOptions& o) {
  return {
      {"device",
       kMachine,
       "NAME",
       "Where to compute; absent: cuda when there is a GPU, else cpu",
       &o.device,
       {"cpu", "cuda"}},
      {"device-memory",
       kMachine,
       "SIZE",
       "Device memory that may be used, as in 40GiB; absent: what the GPU has less a margin, or "
       "half of what the model leaves of the host's",
       &o.device_memory,
       {},
       kSomeBytes},
      {"host-memory",
       kMachine,
       "SIZE",
       "Host memory that may be used; absent: what is available, less a twentieth",
       &o.host_memory,
       {},
       kSomeBytes},
      {"threads",
       kMachine,
       "N",
       "Host threads; 0: one a usable core, less one beside a GPU",
       &o.threads,
       {},
       0.0},
      {"compute",
       kMachine,
       "TYPE",
       "Type of weights and activations in computation; absent: bf16 on GPUs and on processors "
       "with bf16 matrix units, else fp32",
       &o.compute,
       {"fp32", "bf16"}},
      {"deterministic", kMachine, "",
       "Take only kernels that give the same bits each time, where a faster one does not",
       &o.deterministic},
  };
}

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

/// How the states are kept that an update writes.
std::vector<Option> state_table(MachineOptions& o) {
  return {
      {std::string(io::kMomentsOption),
       kOptimizer,
       "TYPE",
       "How AdamW's moments are kept; bf16 (rounded by chance, so that averages move) takes 4 "
       "bytes a parameter less of memory and of a checkpoint, and updates read and write less",
       &o.moments,
       {"fp32", "bf16"}},
      {std::string(io::kMastersOption),
       kOptimizer,
       "TYPE",
       "How the weights are kept that updates change; bf16 (rounded by chance, so that small "
       "changes count) takes 2 bytes a parameter less of memory; needs --compute bf16",
       &o.masters,
       {"fp32", "bf16"}},
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

Option model_option(RunOptions& o) {
  return {.name = "model",
          .group = kModel,
          .value = "FOLDER|PRESET",
          .help = model_help(),
          .target = &o.model,
          .required = true};
}

Option peak_option(RunOptions& o, std::string_view otherwise) {
  return {
      "peak",  kRun, "FLOP/S", fmt::format("What MFU is measured against; absent: {}", otherwise),
      &o.peak, {},   1.0};
}

/// How a step is cut.
std::vector<Option> batch_table(RunOptions& o) {
  return {
      {"seq-len", kBatch, "TOKENS", "Tokens a sequence", &o.seq_len, {}, 1.0, kMostTokens},
      {"batch-tokens",
       kBatch,
       "TOKENS",
       "Tokens a step; a multiple of --seq-len",
       &o.batch_tokens,
       {},
       1.0,
       kMostTokens},
      {"micro-batch",
       kBatch,
       "SEQUENCES",
       "Sequences computed at once; absent: chosen",
       &o.micro_batch,
       {},
       1.0},
  };
}

/// What is asked of the planner besides.
std::vector<Option> choice_table(RunOptions& o) {
  return {
      {"slots", kPlan, "N", "Device buffers of the weight ring; absent: chosen", &o.slots, {}, 1.0},
      {"segment",
       kPlan,
       "K",
       "Blocks between saved boundaries; absent: chosen",
       &o.segment,
       {},
       1.0},
      {"force", kPlan, "CHOICE=VALUE", force_help(), &o.force},
      {"key", kPlan, "FILE", "Numerics key of an earlier run: the same bits as there, or a refusal",
       &o.key},
  };
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

std::vector<Option> generate_table(GenerateOptions& o) {
  std::vector<Option> table = {
      {.name = "model",
       .group = kModel,
       .value = "FOLDER",
       .help = "Hugging Face model folder",
       .target = &o.model,
       .required = true},
      {"prompt", kSampling, "TEXT", "Text to continue; absent: the start of a document", &o.prompt},
      {"tokens", kSampling, "TOKENS", "Most tokens to write", &o.tokens, {}, 1.0},
      {"temperature",
       kSampling,
       "T",
       "Spread of the choice; 0: always the likeliest token",
       &o.temperature,
       {},
       0.0},
      {"top-k", kSampling, "N", "Choose among the likeliest N; 0: all", &o.top_k, {}, 0.0},
      {"top-p",
       kSampling,
       "P",
       "Choose among the likeliest that hold this much; 1: all",
       &o.top_p,
       {},
       0.0},
      {"seed", kSampling, "N", "Seed of the choice", &o.seed},
      {"context",
       kSampling,
       "TOKENS",
       "Tokens that the model looks back, at most the length it is made for; absent: prompt and "
       "text, up to 4096",
       &o.context,
       {},
       1.0},
  };
  append(table, machine_table(o.machine));
  return table;
}

std::vector<Option> bench_table(BenchOptions& o) {
  std::vector<Option> table = {model_option(o.run)};
  table.front().required = false;  // it has a default
  append(table, batch_table(o.run));
  append(table, machine_table(o.run.machine));
  append(table, state_table(o.run.machine));
  append(table, choice_table(o.run));
  append(table,
         {
             {"steps",
              kRun,
              "STEPS",
              "Steps to time; 0: measure the machine alone",
              &o.steps,
              {},
              0.0},
             {"warmup-steps", kRun, "STEPS", "Steps before those", &o.warmup_steps, {}, 1.0},
             {"tokens",
              kRun,
              "TOKENS",
              "Measure kernels with a micro-batch of so many tokens; absent: the plan's",
              &o.tokens,
              {},
              1.0},
             {"disk", kRun, "FOLDER",
              "Where checkpoints will go, to measure that disk; absent: the folder of --rates, "
              "without --rates none",
              &o.disk},
             {"gpus",
              kRun,
              "N",
              "Also measure what the first N GPUs copy together, for plans of several ranks",
              &o.gpus,
              {},
              1.0},
             {"rates", kRun, "FILE", "Where to write the rates, for train and plan", &o.rates},
             {"json", kRun, "FILE", "Where to write all results", &o.json},
             {"trace", kRun, "FILE",
              "Where to write a Chrome trace of one more step, and of the predicted one below it",
              &o.run.trace},
             peak_option(o.run, "the GPU's data sheet, if it is known"),
         });
  return table;
}

}  // namespace megatrain::launcher
