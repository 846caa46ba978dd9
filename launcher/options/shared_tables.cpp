#include "launcher/options/shared_tables.h"

#include <fmt/format.h>

#include "core/model/config.h"
#include "core/plan/planner.h"
#include "io/checkpoint/training_record.h"

namespace megatrain::launcher {

namespace {

/// Of a step. Beyond it lies a typing error, and the lists of the plan would fill the memory.
constexpr double kMostTokens = Index{1} << 28;

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

}  // namespace

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

}  // namespace megatrain::launcher
