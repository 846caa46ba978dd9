#include "core/plan/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatrain {

namespace {

Index largest_wave(const Choices& choices) {
  Index largest = 0;
  for (Index wave = 0; wave < choices.waves; ++wave)
    largest = std::max(largest, choices.wave_begin(wave + 1) - choices.wave_begin(wave));
  return largest;
}

}  // namespace

Index constants_bytes(const ModelConfig& config, Index sequence) {
  return config.rope.kind == RopeKind::none ? 0 : 2 * sequence * (config.head_dim / 2) * 4;
}

Index gathered_row_capacity(const Choices& choices, const ModelConfig& config) {
  const Index rows =
      std::min(largest_wave(choices) * choices.micro_batch.tokens(), config.vocabulary);
  // A multiple of 256 rows: what follows is aligned, whatever the width.
  return round_up(rows, 256);
}

Layout::Layout(const Model& model, const Choices& choices, PlanBuilder& builder)
    : wave_micro_batches(largest_wave(choices)) {
  const ModelConfig& config = model.config();
  const bool train = choices.purpose == Purpose::train;
  const bool tied = config.tied_embeddings;
  const MicroBatchShape shape = choices.micro_batch;
  const Index tokens = shape.tokens();
  const Index element = size_of(choices.compute.type);
  const Index activation = tokens * config.hidden * element;
  const Unit& embedding_unit = model.unit(0);
  const Unit& head_unit = model.unit(model.head_unit());
  const Slicing& slicing = choices.slicing;
  const Index table_elements = slicing.padded(embedding_unit.slab_elements);
  const Index head_elements = slicing.padded(head_unit.slab_elements);
  const Index block_elements = slicing.padded(model.max_block_elements());
  const Index table_bytes = table_elements * element;
  const Index head_bytes = head_elements * element;
  const auto device = [&](std::string name, Index bytes) {
    return builder.allocate(std::move(name), MemorySpace::device, bytes);
  };
  const auto pinned = [&](std::string name, Index bytes) {
    return builder.allocate(std::move(name), MemorySpace::pinned, bytes);
  };

  // Tokens, losses, constants.
  constants = device("rotary tables", constants_bytes(config, shape.sequence));
  host_constants = pinned("rotary tables (host)", constants_bytes(config, shape.sequence));
  const BatchLayout batch_layout{tokens};
  batch = device("tokens", batch_layout.bytes() * choices.micro_batches);
  host_batch = pinned("tokens (host)", batch_layout.bytes() * choices.micro_batches);
  losses = device("losses", tokens * 4 * choices.micro_batches);
  host_losses = pinned("losses (host)", tokens * 4 * choices.micro_batches);
  for (Index m = 0; m < choices.micro_batches; ++m) {
    batch_of.push_back(builder.view(fmt::format("tokens of micro-batch {}", m), batch,
                                    m * batch_layout.bytes(), batch_layout.bytes()));
    losses_of.push_back(builder.view(fmt::format("losses of micro-batch {}", m), losses,
                                     m * tokens * 4, tokens * 4));
  }
  if (choices.purpose == Purpose::generate) {
    logits = device("logits", shape.batch * config.vocabulary * element);
    host_logits = pinned("logits (host)", shape.batch * config.vocabulary * element);
  }

  // Slots. An untied embedding is done with its slot before the head needs one, unless it stays.
  if (tied || choices.device_states > 0) {
    table_slot = device("embedding slot", table_bytes);
    head_slot = device("head slot", head_bytes);
  } else {
    const Index table_part = choices.embedding == EmbeddingMode::table ? table_bytes : 0;
    const BufferId shared = device("embedding and head slot", std::max(table_part, head_bytes));
    table_slot = builder.view("embedding slot", shared, 0, table_part);
    head_slot = builder.view("head slot", shared, 0, head_bytes);
  }
  if (choices.embedding == EmbeddingMode::rows) {
    const Index position_rows = config.learned_positions ? shape.sequence : 0;
    const Index bytes = gathered_row_capacity(choices, config) * config.hidden * element +
                        position_rows * config.hidden * element;
    rows = device("embedding rows", bytes);
    for (Index wave = 0; wave < choices.waves; ++wave)
      host_rows.push_back(pinned(fmt::format("embedding rows of wave {} (host)", wave), bytes));
  }
  for (Index i = 0; i < choices.resident; ++i)
    resident.push_back(device(fmt::format("resident block {}", i), block_elements * element));
  for (Index i = 0; i < choices.slots; ++i)
    slots.push_back(device(fmt::format("slot {}", i), block_elements * element));

  // Activations.
  const auto blocks = at(config.layers);
  kept.resize(blocks);
  boundaries.resize(blocks);
  spill.resize(blocks);
  kept_spill.resize(blocks);
  Index recomputed_bytes = 0;
  Index transit_bytes = 0;
  Index temporary_bytes = Head(model, choices.compute, shape).temporary_bytes();
  for (Index b = 0; b < config.layers; ++b) {
    const Block block(model, b + 1, choices.compute, shape);
    const Keep keep = train ? choices.keep_of(b) : Keep::boundary;
    recomputed_bytes = std::max(recomputed_bytes, block.recomputed_bytes(keep));
    temporary_bytes = std::max(temporary_bytes, block.temporary_bytes());
    const Index bytes = train ? block.kept_bytes(keep) : 0;
    for (Index m = 0; bytes > 0 && m < wave_micro_batches; ++m) {
      const std::string label = fmt::format("kept intermediates of block {} micro-batch {}", b, m);
      if (choices.spills_kept(b))
        kept_spill[at(b)].push_back(pinned(label + " (spilled)", bytes));
      else
        kept[at(b)].push_back(device(label, bytes));
    }
    if (choices.spills_kept(b)) transit_bytes = std::max(transit_bytes, bytes);
  }
  for (Index i = 0; transit_bytes > 0 && i < choices.spill_buffers; ++i)
    kept_transit.push_back(
        device(fmt::format("kept intermediates in transit {}", i), transit_bytes));
  if (train) {
    for (Index b = 0; b < config.layers; b += choices.segment) saved_blocks.push_back(b);
    const Index saved = static_cast<Index>(saved_blocks.size());
    for (Index i = 0; i < saved; ++i) {
      const Index block = saved_blocks[at(i)];
      const bool keep_on_device = i >= saved - choices.device_boundaries;
      for (Index m = 0; m < wave_micro_batches; ++m) {
        const std::string label = fmt::format("boundary of block {} micro-batch {}", block, m);
        if (keep_on_device)
          boundaries[at(block)].push_back(device(label, activation));
        else
          spill[at(block)].push_back(pinned(label + " (spilled)", activation));
      }
    }
    if (choices.device_boundaries < saved)
      for (Index i = 0; i < choices.spill_buffers; ++i)
        stream.push_back(device(fmt::format("activations in transit {}", i), activation));
  }
  for (Index m = 0; m < wave_micro_batches; ++m)
    stream.push_back(device(fmt::format("activations of micro-batch {}", m), activation));
  for (Index k = 0; k < (train ? choices.segment : 1); ++k)
    recomputed.push_back(device(fmt::format("intermediates {}", k), recomputed_bytes));
  for (Index k = 0; train && k + 1 < choices.segment; ++k)
    inner.push_back(device(fmt::format("boundary {} inside a segment", k + 1), activation));
  temporary = device("temporary and library workspace", temporary_bytes);

  // Store slabs, or the slices of them that are held. What only updates write is one range.
  const Index state_bytes = choices.state_bytes();
  for (Index u = 0; u < model.unit_count(); ++u) {
    const auto unit = static_cast<std::int32_t>(u);
    const Index elements = slicing.slice(model.unit(u).slab_elements);
    host_weights.push_back(
        builder.store("weights of " + model.unit(u).name(), unit, elements * element));
    if (!train) continue;
    host_state.push_back(
        builder.store("optimizer state of " + model.unit(u).name(), unit, elements * state_bytes));
    host_gradient.push_back(builder.store("gradient of " + model.unit(u).name(), unit,
                                          elements * choices.gradient_bytes()));
  }
  if (!train) return;
  for (Index u = 0; u < choices.device_states; ++u) {
    const std::string unit = model.unit(u).name();
    const Index elements = slicing.slice(model.unit(u).slab_elements);
    device_state.push_back(
        device("optimizer state on the device of " + unit, elements * state_bytes));
    device_gradient.push_back(
        device("gradient kept on the device of " + unit, elements * size_of(choices.wire())));
  }

  // Gradients. With several waves an accumulator is still on its way down while the next opens, and
  // with several ranks it is still being summed.
  const Index open = choices.segment + (choices.waves > 1 || choices.ranks() > 1 ? 1 : 0);
  for (Index i = 0; i < open; ++i)
    accumulators.push_back(device(fmt::format("gradient accumulator {}", i), block_elements * 4));
  const Index table_gradient = table_elements * 4;
  const Index head_gradient = head_elements * 4;
  if (tied) {
    table_accumulator = device("embedding gradient accumulator", table_gradient);
    head_accumulator = device("head gradient accumulator", head_gradient);
  } else {
    const BufferId shared =
        device("head and embedding gradient accumulator", std::max(table_gradient, head_gradient));
    table_accumulator = builder.view("embedding gradient accumulator", shared, 0, table_gradient);
    head_accumulator = builder.view("head gradient accumulator", shared, 0, head_gradient);
  }
  for (Index i = 0; i < choices.staging; ++i)
    wires.push_back(device(fmt::format("gradient on the wire {}", i),
                           choices.staging_elements * size_of(choices.wire())));
  const auto unit_partials = [&](const Unit& unit) {
    return ops::norm_partials(slicing.slice(unit.slab_elements));
  };
  Index partial_count = 0;
  for (const Unit& unit : model.units()) partial_count += unit_partials(unit);
  partials = device("squared-norm partials", partial_count * 8);
  host_partials = pinned("squared-norm partials (host)", partial_count * 8);
  Index first = 0;
  for (const Unit& unit : model.units()) {
    const Index bytes = unit_partials(unit) * 8;
    partials_of.push_back(
        builder.view("squared-norm partials of " + unit.name(), partials, first, bytes));
    host_partials_of.push_back(builder.view("squared-norm partials of " + unit.name() + " (host)",
                                            host_partials, first, bytes));
    first += bytes;
  }
}

}  // namespace megatrain
