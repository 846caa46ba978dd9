#include "core/train/batch.h"

#include <algorithm>
#include <numeric>

#include "core/train/data_order.h"

namespace megatrain {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Sorts the tokens of a micro-batch by id (stable): `order`, and where each distinct id begins.
/// @returns the number of distinct ids
Index sort_by_id(const BatchLayout& layout, std::int32_t* part) {
  const std::int32_t* ids = part + layout.ids();
  std::int32_t* order = part + layout.order();
  std::iota(order, order + layout.tokens, 0);
  std::stable_sort(order, order + layout.tokens,
                   [&](std::int32_t a, std::int32_t b) { return ids[a] < ids[b]; });
  Index uniques = 0;
  for (Index i = 0; i < layout.tokens; ++i) {
    const std::int32_t id = ids[order[i]];
    if (i > 0 && id == part[layout.unique() + uniques - 1]) continue;
    part[layout.begins() + uniques] = static_cast<std::int32_t>(i);
    part[layout.unique() + uniques] = id;
    ++uniques;
  }
  part[layout.begins() + uniques] = static_cast<std::int32_t>(layout.tokens);
  return uniques;
}

/// Lists the distinct ids of each wave and renumbers the ids to places in that list. The tokens
/// sorted by id keep the true ids: gradients go to the whole table.
void renumber(Batch& batch, const Choices& choices, const BatchLayout& layout, Index stride) {
  for (Index wave = 0; wave < choices.waves; ++wave) {
    std::vector<std::int32_t> rows;
    for (Index m = choices.wave_begin(wave); m < choices.wave_begin(wave + 1); ++m) {
      const std::int32_t* unique = batch.tokens.data() + m * stride + layout.unique();
      rows.insert(rows.end(), unique, unique + batch.inputs.uniques[at(m)]);
    }
    std::ranges::sort(rows);
    rows.erase(std::ranges::unique(rows).begin(), rows.end());
    for (Index m = choices.wave_begin(wave); m < choices.wave_begin(wave + 1); ++m) {
      std::int32_t* ids = batch.tokens.data() + m * stride + layout.ids();
      for (Index t = 0; t < layout.tokens; ++t)
        ids[t] = static_cast<std::int32_t>(std::ranges::lower_bound(rows, ids[t]) - rows.begin());
    }
    batch.inputs.rows.push_back(std::move(rows));
  }
}

}  // namespace

float token_scale(Index valid_tokens) {
  return valid_tokens > 0 ? static_cast<float>(1.0 / static_cast<double>(valid_tokens)) : 0.0F;
}

Batch make_batch(const Choices& choices, const ModelConfig& config,
                 std::span<const std::int32_t> sequences) {
  const MicroBatchShape shape = choices.micro_batch;
  const BatchLayout layout{shape.tokens()};
  const Index stride = layout.bytes() / 4;
  const Index sample = shape.sequence + 1;
  require(static_cast<Index>(sequences.size()) == choices.step_sequences() * sample,
          "a batch has the step's sequences");
  Batch batch;
  batch.tokens.assign(at(stride * choices.micro_batches), 0);
  for (Index m = 0; m < choices.micro_batches; ++m) {
    std::int32_t* part = batch.tokens.data() + m * stride;
    for (Index s = 0; s < shape.batch; ++s) {
      const std::int32_t* tokens = sequences.data() + (m * shape.batch + s) * sample;
      for (Index t = 0; t < shape.sequence; ++t) {
        const Index place = s * shape.sequence + t;
        const std::int32_t target = tokens[t + 1];
        require(tokens[t] < config.vocabulary && target < config.vocabulary,
                "a token source gives ids inside the vocabulary");
        // A token that does not count as a target is still read; which row it reads is moot.
        part[layout.ids() + place] = std::max<std::int32_t>(tokens[t], 0);
        part[layout.targets() + place] = target;
        batch.valid_tokens += target >= 0 ? 1 : 0;
      }
    }
    batch.inputs.uniques.push_back(sort_by_id(layout, part));
  }
  if (choices.embedding == EmbeddingMode::rows) renumber(batch, choices, layout, stride);
  batch.inputs.tokens = batch.tokens;
  batch.inputs.scale = token_scale(batch.valid_tokens);
  return batch;
}

Batch training_batch(const Choices& choices, const ModelConfig& config, const TokenSource& source,
                     std::uint64_t seed, Index first_sample, const DataShare& share) {
  first_sample += share.rank * choices.step_sequences();
  const Index sample = source.sequence() + 1;
  std::vector<std::int32_t> sequences(at(choices.step_sequences() * sample));
  for (Index s = 0; s < choices.step_sequences(); ++s)
    source.sample(sample_at(seed, first_sample + s, source.samples()),
                  std::span(sequences).subspan(at(s * sample), at(sample)));
  return make_batch(choices, config, sequences);
}

Batch evaluation_batch(const Choices& choices, const ModelConfig& config, const TokenSource& source,
                       Index first_sample, const DataShare& share) {
  first_sample += share.rank * choices.step_sequences();
  const Index sample = source.sequence() + 1;
  std::vector<std::int32_t> sequences(at(choices.step_sequences() * sample), -1);
  const Index count = std::min(choices.step_sequences(), source.samples() - first_sample);
  for (Index s = 0; s < count; ++s)
    source.sample(first_sample + s, std::span(sequences).subspan(at(s * sample), at(sample)));
  return make_batch(choices, config, sequences);
}

}  // namespace megatrain
