#include "launcher/options/generate_options.h"

#include "launcher/options/shared_tables.h"

namespace megatrain::launcher {

namespace {

constexpr const char* kSampling = "Sampling";

}  // namespace

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

}  // namespace megatrain::launcher
