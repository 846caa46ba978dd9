#include "launcher/commands/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/train/generate.h"
#include "io/byte_tokenizer.h"
#include "launcher/console.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"

namespace megatrain::launcher {

namespace {

/// Tokens that a context grows to by itself.
constexpr Index kLongestContext = 4096;

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// How far the model looks back. Each token costs a pass over the whole context: unless it is
/// given, it is no longer than it has to be.
Index choose_context(const GenerateOptions& options, const ModelConfig& config, Index prompt) {
  const Index reach = config.max_positions;
  if (options.context && *options.context > reach)
    throw UserError(
        fmt::format("--context is {}, but {} is made for {} tokens; give at most that many",
                    *options.context, options.model, reach));
  const Index text = prompt + std::min(options.tokens, reach);
  const Index context = options.context.value_or(std::min({text, reach, kLongestContext}));
  if (prompt > context)
    Console().warning(fmt::format("the prompt has {} tokens, of which the model sees the last {}{}",
                                  prompt, context, context < reach ? " (--context)" : ""));
  return context;
}

}  // namespace

void generate(const GenerateOptions& options) {
  if (options.top_p <= 0 || options.top_p > 1)
    throw UserError(fmt::format("--top-p is {}; it must be above 0 and at most 1", options.top_p));
  const ModelSource source = find_model(options.model);
  if (const auto refusal = io::refuse_bytes(source.side_files, source.config.vocabulary))
    throw UserError(fmt::format("{} cannot be sampled: {}", options.model, *refusal));

  // Documents end with the end token, so that it also stands before their start.
  std::vector<std::int32_t> prompt = io::encode_bytes(options.prompt);
  if (prompt.empty()) prompt.push_back(io::kEndToken);
  const Index context = choose_context(options, source.config, static_cast<Index>(prompt.size()));

  const Model model(source.config);
  check_weights(source, model);
  const Machine machine =
      open_machine(options.machine, model, Presence::required, StoreContents::weights);
  Plan plan = plan_generation(options.machine, machine, model, context);
  ThreadPool pool(machine.threads.count, machine.threads.processors);
  HostStore store(model, {.contents = plan.choices.store_contents(), .master = machine.master},
                  *machine.device, pool);
  fill_store(store, source, options.seed, pool, {});
  Engine engine(*machine.device, *machine.ops, model, store, pool, {.generate = std::move(plan)});

  print(options.prompt);
  const SamplingOptions sampling{.most_tokens = options.tokens,
                                 .temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .seed = options.seed,
                                 .stop = {io::kEndToken}};
  megatrain::generate(engine, model, prompt, sampling,
                      [](std::int32_t token) { print(io::decode_bytes(std::span(&token, 1))); });
  print("\n");
}

}  // namespace megatrain::launcher
