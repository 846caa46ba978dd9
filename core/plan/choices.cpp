#include "core/plan/choices.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain {

namespace {

void at_least(Index value, Index least, std::string_view what) {
  if (value < least)
    throw UserError(fmt::format("{} is {}, but must be at least {}", what, value, least));
}

void at_most(Index value, Index most, std::string_view what) {
  if (value > most)
    throw UserError(fmt::format("{} is {}, but can be at most {}", what, value, most));
}

void validate_device_states(const Choices& choices, const Model& model) {
  const Index count = choices.device_states;
  at_least(count, 0, "device-states");
  at_most(count, model.unit_count(), "device-states (the model's units)");
  if (count == 0) return;
  if (choices.purpose != Purpose::train)
    throw UserError("device-states are of training alone: nothing else has states to update");
  if (choices.waves > 1)
    throw UserError(fmt::format(
        "device-states need a step of one wave, not {}: what waves carry goes through the host",
        choices.waves));
  if (choices.embedding == EmbeddingMode::rows)
    throw UserError(
        "the embedding is the first unit whose states live on the device: embedding must be table "
        "with device-states");
  const Index blocks = std::min(count - 1, model.config().layers);
  at_least(choices.resident, blocks,
           "resident blocks (the weights of blocks whose states live on the device)");
}

}  // namespace

void hold_states(Choices& choices, const Model& model, Index units) {
  choices.device_states = units;
  if (units == 0) return;
  choices.embedding = EmbeddingMode::table;
  choices.resident = std::max(choices.resident, std::min(units - 1, model.config().layers));
}

std::vector<bool> spread_evenly(Index count, Index blocks, Index first) {
  std::vector<bool> chosen(static_cast<std::size_t>(blocks));
  const Index among = blocks - first;
  for (Index b = 0; b < among; ++b)
    chosen[static_cast<std::size_t>(first + b)] = (b + 1) * count / among != b * count / among;
  return chosen;
}

void validate(const Choices& choices, const Model& model) {
  const Index layers = model.config().layers;
  at_least(choices.micro_batch.batch, 1, "sequences a micro-batch");
  at_least(choices.micro_batch.sequence, 1, "tokens a sequence");
  at_least(choices.micro_batches, 1, "micro-batches a step");
  at_least(choices.waves, 1, "waves");
  at_most(choices.waves, choices.micro_batches, "waves (one micro-batch each is the finest)");
  at_least(choices.slicing.count, 1, "ranks of a shard group");
  at_least(choices.slicing.index, 0, "the rank in its shard group");
  at_most(choices.slicing.index, choices.slicing.count - 1, "the rank in its shard group");
  at_least(choices.replicas, 1, "replicas");
  if (choices.slicing.count > 1 && choices.embedding == EmbeddingMode::rows)
    throw UserError(
        "the host cannot gather rows of an embedding of which it holds a slice: embedding must be "
        "table where several ranks share the model");
  if (model.partition().count > 1 && choices.embedding == EmbeddingMode::rows)
    throw UserError(
        "the host cannot gather rows of an embedding that is divided: embedding must be table "
        "where "
        "the model is in several parts");
  if (model.partition().count > 1 && choices.graphs)
    throw UserError(
        "blocks that are divided call the other parts, which no graph can: graphs must be off "
        "where "
        "the model is in several parts");
  at_least(choices.compute.head_chunk, 1, "head-chunk");
  at_least(choices.segment, 1, "segment");
  at_most(choices.segment, layers, "segment (the model's blocks)");
  at_least(choices.resident, 0, "resident blocks");
  at_most(choices.resident, layers, "resident blocks (the model's blocks)");
  validate_device_states(choices, model);
  const Index streamed_of_segment = std::min(choices.segment, layers - choices.resident);
  at_least(choices.slots, std::max<Index>(1, streamed_of_segment),
           "slots (a segment's blocks are held together)");
  at_most(choices.slots, layers + 1, "slots (one more than the model's blocks)");
  at_least(choices.device_boundaries, 0, "device-boundaries");
  const Index saved = ceil_div(layers, choices.segment);
  at_most(choices.device_boundaries, saved, "device-boundaries (the segments)");
  at_least(choices.spill_buffers, 1, "spill-buffers");
  at_most(choices.spill_buffers, layers * choices.micro_batches,
          "spill-buffers (the boundaries of a step)");
  at_least(choices.staging, 1, "staging buffers");
  at_most(choices.staging, layers + 2, "staging buffers (the model's units)");
  at_least(choices.staging_elements, ops::kNormChunk, "elements of a staging buffer");
  if (choices.staging_elements % ops::kNormChunk != 0)
    throw UserError(fmt::format("elements of a staging buffer are {}, but must be a multiple of {}",
                                choices.staging_elements, ops::kNormChunk));
  if (!choices.kept_on_host.empty() && static_cast<Index>(choices.kept_on_host.size()) != layers)
    throw UserError(fmt::format("kept-on-host names {} blocks, but the model has {}",
                                choices.kept_on_host.size(), layers));
  if (!choices.keep.empty()) {
    if (static_cast<Index>(choices.keep.size()) != layers)
      throw UserError(
          fmt::format("keep names {} blocks, but the model has {}", choices.keep.size(), layers));
    const bool keeps =
        std::ranges::any_of(choices.keep, [](Keep k) { return k != Keep::boundary; });
    if (keeps && choices.segment > 1)
      throw UserError(
          "intermediates can be kept only with segment = 1: inside a longer segment the inputs "
          "themselves are recomputed");
  }
  if (model.config().learned_positions &&
      choices.micro_batch.sequence > model.config().max_positions)
    throw UserError(fmt::format("sequences of {} tokens, but the model has {} learned positions",
                                choices.micro_batch.sequence, model.config().max_positions));
  if (choices.compute.type != weight_type(choices.master))
    throw UserError(
        "plain fp32 masters stream as fp32 (--compute fp32), split ones and bf16 as bf16");
}

std::string world_text(const Slicing& slicing, Index replicas) {
  return fmt::format("{} x {}", replicas, slicing.count);
}

std::string numerics_key(const Choices& choices, const Model& model, std::string_view device) {
  // Two products over disjoint rows give the same bits whatever the chunk only if the library
  // says so, and none does: every cut is part of the key.
  const ModelConfig& c = model.config();
  std::string key;
  const auto line = [&](std::string_view name, auto value) {
    key += fmt::format("{} = {}\n", name, value);
  };
  line("device", device);
  line("model",
       fmt::format("{} {}x{} heads {}/{}x{} mlp {} vocabulary {}", c.model_type, c.layers, c.hidden,
                   c.heads, c.kv_heads, c.head_dim, c.intermediate, c.vocabulary));
  line("compute", name(choices.compute.type));
  line("wire", name(choices.wire()));
  line("masters", name(choices.master));
  line("moments", name(choices.moments));
  line("sequence", choices.micro_batch.sequence);
  line("micro-batch", choices.micro_batch.batch);
  line("micro-batches", choices.micro_batches);
  line("attention", ops::name(choices.compute.attention));
  line("head-chunk", choices.compute.head_chunk);
  // Where the tables are tied, a wave's head and embedding shares meet before the next wave's, and
  // so do the shares of ranks.
  if (c.tied_embeddings || choices.ranks() > 1) line("waves", choices.waves);
  // The sums over parts.
  line("parts", model.partition().count);
  line("world", world_text(choices.slicing, choices.replicas));
  return key;
}

}  // namespace megatrain
