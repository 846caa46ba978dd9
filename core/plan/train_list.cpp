#include "core/plan/train_list.h"

#include <algorithm>

namespace megatrain {

namespace {
std::int32_t id(Index value) { return static_cast<std::int32_t>(value); }
std::size_t at(Index i) { return static_cast<std::size_t>(i); }
}  // namespace

TrainListWriter::TrainListWriter(const Model& model, const Choices& choices, const Layout& layout,
                                 PlanBuilder& builder)
    : model_(model), choices_(choices), layout_(layout), writer_(model, choices, layout, builder) {}

void TrainListWriter::prologue(InstructionList& list) {
  writer_.begin(list);
  writer_.upload_constants();
  writer_.states_up();
  for (const BufferId accumulator : layout_.accumulators) writer_.zero(accumulator, 1);
  if (model_.config().tied_embeddings) {
    writer_.zero(layout_.table_accumulator, 0);
    writer_.zero(layout_.head_accumulator, id(model_.head_unit()));
  }
}

void TrainListWriter::body(InstructionList& list) {
  writer_.begin(list);
  free_stream_ = {};
  for (const BufferId buffer : layout_.stream) free_stream_.add(buffer);
  free_kept_ = {};
  for (const BufferId buffer : layout_.kept_transit) free_kept_.add(buffer);
  free_accumulators_ = {};
  for (const BufferId buffer : layout_.accumulators) free_accumulators_.add(buffer);
  free_wires_ = {};
  for (const BufferId buffer : layout_.wires) free_wires_.add(buffer);

  writer_.stage_and_upload();
  writer_.updates_and_gathers();
  for (Index wave = 0; wave < choices_.waves; ++wave) {
    forward_wave(wave);
    head_visit(wave);
    backward_wave(wave);
    embedding_backward(wave);
    for (const BufferId buffer : current_) free_stream_.release(buffer);
  }
  writer_.download_losses();
  writer_.collect(true);
}

BufferId TrainListWriter::boundary_target(Index block, Index local, BufferId previous) {
  if (block < model_.config().layers && starts_segment(block) && layout_.on_device(block))
    return layout_.boundaries[at(block)][at(local)];
  // What comes next is not kept on the device. A boundary that nobody needs again is overwritten.
  const bool previous_is_free = previous >= 0 && !starts_segment(block - 1);
  return previous_is_free ? previous : free_stream_.acquire();
}

void TrainListWriter::boundary_written(Index block, Index wave, Index local, BufferId buffer) {
  if (block == model_.config().layers || !starts_segment(block) || layout_.on_device(block)) return;
  writer_.add({.op = OpCode::spill,
               .stream = StreamId::spill,
               .unit = id(block + 1),
               .micro_batch = id(choices_.wave_begin(wave) + local),
               .wave = id(wave),
               .cost = {.link_bytes = writer_.activation_bytes()}},
              {{buffer, Role::source, Access::read},
               {layout_.spill[at(block)][at(local)], Role::destination, Access::write}});
}

void TrainListWriter::boundary_read(Index block, BufferId buffer) {
  const bool has_own_buffer = starts_segment(block) && layout_.on_device(block);
  if (!has_own_buffer) free_stream_.release(buffer);
}

BufferId TrainListWriter::kept_target(Index block, Index local) {
  if (layout_.kept_spilled(block)) return free_kept_.acquire();
  const auto& kept = layout_.kept[at(block)];
  return kept.empty() ? -1 : kept[at(local)];
}

void TrainListWriter::kept_written(Index block, Index wave, Index local, BufferId buffer) {
  if (!layout_.kept_spilled(block)) return;
  writer_.add({.op = OpCode::spill,
               .stream = StreamId::spill,
               .unit = id(block + 1),
               .micro_batch = id(choices_.wave_begin(wave) + local),
               .wave = id(wave),
               .cost = {.link_bytes = writer_.costs().kept_bytes(block)}},
              {{buffer, Role::source, Access::read},
               {layout_.kept_spill[at(block)][at(local)], Role::destination, Access::write}});
  free_kept_.release(buffer);
}

BufferId TrainListWriter::kept_again(Index block, Index wave, Index local) {
  const BufferId buffer = kept_target(block, local);
  if (layout_.kept_spilled(block))
    writer_.add({.op = OpCode::unspill,
                 .stream = StreamId::spill,
                 .unit = id(block + 1),
                 .micro_batch = id(choices_.wave_begin(wave) + local),
                 .wave = id(wave),
                 .cost = {.link_bytes = writer_.costs().kept_bytes(block)}},
                {{layout_.kept_spill[at(block)][at(local)], Role::source, Access::read},
                 {buffer, Role::destination, Access::write}});
  return buffer;
}

void TrainListWriter::kept_read(Index block, BufferId buffer) {
  if (layout_.kept_spilled(block)) free_kept_.release(buffer);
}

void TrainListWriter::forward_wave(Index wave) {
  const Index first = choices_.wave_begin(wave);
  const Index count = micro_batches(wave);
  const Index layers = model_.config().layers;
  current_.assign(at(count), -1);

  writer_.fetch_embedding(wave);
  for (Index local = 0; local < count; ++local) {
    current_[at(local)] = boundary_target(0, local, -1);
    writer_.embed(wave, first + local, current_[at(local)]);
    boundary_written(0, wave, local, current_[at(local)]);
  }
  if (!model_.config().tied_embeddings) writer_.release_embedding();

  for (Index b = 0; b < layers; ++b) {
    writer_.hold(b, wave);
    for (Index local = 0; local < count; ++local) {
      const BufferId input = current_[at(local)];
      const BufferId output = boundary_target(b + 1, local, input);
      const BufferId kept = kept_target(b, local);
      writer_.forward(b, wave, first + local, kept, input, output);
      kept_written(b, wave, local, kept);
      if (output != input) boundary_read(b, input);
      boundary_written(b + 1, wave, local, output);
      current_[at(local)] = output;
    }
    // Backward begins with the last segment: its blocks stay in their slots.
    const bool in_last_segment = b >= layout_.saved_blocks.back();
    if (!in_last_segment && b >= choices_.resident) writer_.release(b, wave);
  }
}

void TrainListWriter::head_visit(Index wave) {
  const Index unit = model_.head_unit();
  const bool tied = model_.config().tied_embeddings;
  const BufferId table_accumulator = tied ? layout_.table_accumulator : -1;
  writer_.fetch_head(wave);
  // The untied head shares its accumulator's memory with the embedding's, whose layout differs:
  // padding must be clean before the first products land between it.
  if (!tied && wave == 0) writer_.zero(layout_.head_accumulator, id(unit));
  carry_up(unit, wave, layout_.head_accumulator);
  if (tied) carry_up(0, wave, layout_.table_accumulator);
  for (Index local = 0; local < micro_batches(wave); ++local) {
    const Index micro_batch = choices_.wave_begin(wave) + local;
    const bool accumulate = accumulates(wave, local);
    const Access access = accumulate ? Access::read_write : Access::write;
    writer_.add({.op = OpCode::head,
                 .unit = id(unit),
                 .micro_batch = id(micro_batch),
                 .wave = id(wave),
                 .accumulate = accumulate,
                 .cost = writer_.costs().head()},
                {{layout_.head_slot, Role::weights, Access::read},
                 {tied ? layout_.table_slot : -1, Role::table, Access::read},
                 {layout_.batch_of[at(micro_batch)], Role::batch, Access::read},
                 {layout_.losses_of[at(micro_batch)], Role::losses, Access::write},
                 {current_[at(local)], Role::gradient_stream, Access::read_write},
                 {layout_.head_accumulator, Role::gradient, access},
                 {table_accumulator, Role::table_gradient, access},
                 {layout_.temporary, Role::temporary, Access::write}});
  }
  writer_.release_head();
  if (tied) writer_.release_embedding();
  finish_gradient(unit, wave, layout_.head_accumulator);
}

void TrainListWriter::recompute(Index block, Index wave, Index local, BufferId input, Index part,
                                BufferId output, BufferId kept) {
  writer_.add({.op = OpCode::recompute,
               .unit = id(block + 1),
               .micro_batch = id(choices_.wave_begin(wave) + local),
               .wave = id(wave),
               .cost = writer_.costs().recompute(block, output >= 0)},
              {{writer_.hold(block, wave), Role::weights, Access::read},
               {layout_.constants, Role::constants, Access::read},
               {input, Role::input, Access::read},
               {output, Role::output, Access::write},
               {kept, Role::kept, Access::read_write},
               {layout_.recomputed[at(part)], Role::recomputed, Access::write},
               {layout_.temporary, Role::temporary, Access::write}});
}

void TrainListWriter::backward(Index block, Index wave, Index local, BufferId input, Index part,
                               BufferId accumulator, BufferId kept) {
  const bool accumulate = accumulates(wave, local);
  writer_.add({.op = OpCode::backward,
               .unit = id(block + 1),
               .micro_batch = id(choices_.wave_begin(wave) + local),
               .wave = id(wave),
               .accumulate = accumulate,
               .cost = writer_.costs().backward(block)},
              {{writer_.hold(block, wave), Role::weights, Access::read},
               {layout_.constants, Role::constants, Access::read},
               {input, Role::input, Access::read},
               {kept, Role::kept, Access::read_write},
               {layout_.recomputed[at(part)], Role::recomputed, Access::read_write},
               {current_[at(local)], Role::gradient_stream, Access::read_write},
               {accumulator, Role::gradient, accumulate ? Access::read_write : Access::write},
               {layout_.temporary, Role::temporary, Access::write}});
}

void TrainListWriter::backward_wave(Index wave) {
  const auto& starts = layout_.saved_blocks;
  for (Index s = static_cast<Index>(starts.size()) - 1; s >= 0; --s) {
    const Index first = starts[at(s)];
    const Index last = std::min(first + choices_.segment, model_.config().layers) - 1;
    backward_segment(first, last, wave);
  }
}

void TrainListWriter::backward_segment(Index first, Index last, Index wave) {
  for (Index b = first; b <= last; ++b) writer_.hold(b, wave);
  std::vector<BufferId> open;
  for (Index b = first; b <= last; ++b) {
    open.push_back(free_accumulators_.acquire());
    carry_up(b + 1, wave, open.back());
  }
  for (Index local = 0; local < micro_batches(wave); ++local) {
    BufferId boundary = -1;
    if (layout_.on_device(first)) {
      boundary = layout_.boundaries[at(first)][at(local)];
    } else {
      boundary = free_stream_.acquire();
      writer_.add({.op = OpCode::unspill,
                   .stream = StreamId::spill,
                   .unit = id(first + 1),
                   .micro_batch = id(choices_.wave_begin(wave) + local),
                   .wave = id(wave),
                   .cost = {.link_bytes = writer_.activation_bytes()}},
                  {{layout_.spill[at(first)][at(local)], Role::source, Access::read},
                   {boundary, Role::destination, Access::write}});
    }
    const auto input = [&](Index b) {
      return b == first ? boundary : layout_.inner[at(b - first - 1)];
    };
    // Only where a segment is a single block.
    const BufferId kept = kept_again(first, wave, local);
    for (Index b = first; b <= last; ++b)
      recompute(b, wave, local, input(b), b - first, b < last ? input(b + 1) : -1, kept);
    for (Index b = last; b >= first; --b)
      backward(b, wave, local, input(b), b - first, open[at(b - first)], kept);
    kept_read(first, kept);
    if (!layout_.on_device(first)) free_stream_.release(boundary);
  }
  for (Index b = last; b >= first; --b) {
    const bool last_use = wave + 1 == choices_.waves;
    if (b >= choices_.resident || last_use) writer_.release(b, wave);
    finish_gradient(b + 1, wave, open[at(b - first)]);
    free_accumulators_.release(open[at(b - first)]);
  }
}

void TrainListWriter::embedding_backward(Index wave) {
  const bool tied = model_.config().tied_embeddings;
  // Tokens scatter into the table, so it must be defined everywhere: clean, or the head's share.
  if (!tied && wave == 0) writer_.zero(layout_.table_accumulator, 0);
  if (!tied) carry_up(0, wave, layout_.table_accumulator);
  for (Index local = 0; local < micro_batches(wave); ++local) {
    const Index micro_batch = choices_.wave_begin(wave) + local;
    writer_.add({.op = OpCode::embed_backward,
                 .unit = 0,
                 .micro_batch = id(micro_batch),
                 .wave = id(wave),
                 .accumulate = accumulates(wave, local),
                 .cost = {.device_bytes = 3 * writer_.activation_bytes()}},
                {{layout_.batch_of[at(micro_batch)], Role::batch, Access::read},
                 {current_[at(local)], Role::gradient_stream, Access::read},
                 {layout_.table_accumulator, Role::gradient, Access::read_write}});
  }
  finish_gradient(0, wave, layout_.table_accumulator);
}

void TrainListWriter::carry_up(Index unit, Index wave, BufferId accumulator) {
  if (wave == 0) return;
  // What was carried is the sum of all ranks, and this rank's slice of it: what else the ranks
  // accumulate begins at zero and is added to it by the next sum.
  if (choices_.slicing.count > 1) writer_.zero(accumulator, id(unit));
  writer_.add({.op = OpCode::carry_up,
               .stream = StreamId::fetch,
               .unit = id(unit),
               .wave = id(wave),
               .cost = {.link_bytes = writer_.slice_elements(unit) * 4}},
              {{layout_.host_gradient[at(unit)], Role::host_gradient, Access::read},
               {accumulator, Role::gradient, Access::write}});
}

void TrainListWriter::finish_gradient(Index unit, Index wave, BufferId accumulator) {
  const Index elements = writer_.slice_elements(unit);
  // Once, when the last share is in: what is carried between waves stays each part's own.
  if (model_.unit(unit).sums_over_parts() && wave + 1 == choices_.waves)
    writer_.add({.op = OpCode::sum_parts, .unit = id(unit), .wave = id(wave)},
                {{accumulator, Role::gradient, Access::read_write}});
  if (choices_.slicing.count > 1)
    writer_.add({.op = OpCode::reduce_scatter,
                 .stream = StreamId::scatter,
                 .unit = id(unit),
                 .wave = id(wave),
                 .cost = {.peer_bytes = elements * 4 * (choices_.slicing.count - 1)}},
                {{accumulator, Role::gradient, Access::read_write}});
  if (wave + 1 < choices_.waves) {
    writer_.add({.op = OpCode::carry_down,
                 .stream = StreamId::offload,
                 .unit = id(unit),
                 .wave = id(wave),
                 .cost = {.link_bytes = elements * 4}},
                {{accumulator, Role::gradient, Access::read},
                 {layout_.host_gradient[at(unit)], Role::host_gradient, Access::write}});
    return;
  }
  if (choices_.replicas > 1)
    writer_.add(
        {.op = OpCode::all_reduce,
         .stream = StreamId::scatter,
         .unit = id(unit),
         .wave = id(wave),
         .cost = {.peer_bytes = 2 * elements * 4 * (choices_.replicas - 1) / choices_.replicas}},
        {{accumulator, Role::gradient, Access::read_write}});
  finish_on_wire(unit, wave, accumulator, elements);
}

void TrainListWriter::finish_on_wire(Index unit, Index wave, BufferId accumulator, Index elements) {
  // Behind a sum over ranks it would hold up the next unit's backward pass.
  const StreamId reducing = choices_.ranks() > 1 ? StreamId::scatter : StreamId::compute;
  const bool stays = choices_.updates_on_device(unit);
  const Index piece = stays ? elements : choices_.staging_elements;
  for (Index first = 0; first < elements; first += piece) {
    const Index count = std::min(piece, elements - first);
    const BufferId wire = stays ? layout_.device_gradient[at(unit)] : free_wires_.acquire();
    writer_.add({.op = OpCode::reduce,
                 .stream = reducing,
                 .unit = id(unit),
                 .wave = id(wave),
                 .first = first,
                 .count = count,
                 .cost = {.slab_bytes = count * (4 + size_of(choices_.wire()))}},
                {{accumulator, Role::gradient, Access::read},
                 {wire, Role::wire, Access::write},
                 {layout_.partials_of[at(unit)], Role::partials, Access::write}});
    writer_.add({.op = OpCode::offload,
                 .stream = StreamId::offload,
                 .unit = id(unit),
                 .wave = id(wave),
                 .first = first,
                 .count = count,
                 .cost = {.link_bytes = stays ? 0 : count * size_of(choices_.wire())}},
                {{stays ? -1 : wire, Role::wire, Access::read},
                 {layout_.partials_of[at(unit)], Role::partials, Access::read},
                 {stays ? -1 : layout_.host_gradient[at(unit)], Role::host_gradient, Access::write},
                 {layout_.host_partials_of[at(unit)], Role::host_partials, Access::write}});
    if (!stays) free_wires_.release(wire);
  }
}

}  // namespace megatrain
