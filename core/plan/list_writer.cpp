#include "core/plan/list_writer.h"

#include "core/ops/work.h"

namespace megatrain {

namespace {
std::int32_t id(Index value) { return static_cast<std::int32_t>(value); }
}  // namespace

ListWriter::ListWriter(const Model& model, const Choices& choices, const Layout& layout,
                       PlanBuilder& builder)
    : model_(model),
      choices_(choices),
      layout_(layout),
      builder_(builder),
      costs_(model, choices) {}

void ListWriter::begin(InstructionList& list) {
  builder_.begin(list);
  slot_of_.assign(Layout::at(model_.config().layers), -1);
  free_slots_ = {};
  for (const BufferId slot : layout_.slots) free_slots_.add(slot);
}

void ListWriter::add(const Instruction& instruction, std::initializer_list<Operand> operands) {
  builder_.add(instruction, std::span(operands.begin(), operands.size()));
}

Index ListWriter::activation_bytes() const {
  return choices_.micro_batch.tokens() * model_.config().hidden * size_of(choices_.compute.type);
}

void ListWriter::upload_constants() {
  if (layout_.constants < 0) return;
  const Index bytes = constants_bytes(model_.config(), choices_.micro_batch.sequence);
  add({.op = OpCode::upload, .stream = StreamId::fetch, .cost = {.link_bytes = bytes}},
      {{layout_.host_constants, Role::source, Access::read},
       {layout_.constants, Role::destination, Access::write}});
}

void ListWriter::zero(BufferId accumulator, std::int32_t unit) {
  if (accumulator < 0) return;
  const Index elements = unit == 0 ? model_.unit(0).slab_elements : model_.max_block_elements();
  const Index bytes = choices_.slicing.padded(elements) * 4;
  add({.op = OpCode::zero, .unit = unit, .cost = {.slab_bytes = bytes}},
      {{accumulator, Role::destination, Access::write}});
}

void ListWriter::stage_and_upload() {
  const Index bytes = BatchLayout{choices_.micro_batch.tokens()}.bytes() * choices_.micro_batches;
  add({.op = OpCode::stage, .stream = StreamId::host},
      {{layout_.host_batch, Role::destination, Access::write}});
  add({.op = OpCode::upload, .stream = StreamId::fetch, .cost = {.link_bytes = bytes}},
      {{layout_.host_batch, Role::source, Access::read},
       {layout_.batch, Role::destination, Access::write}});
}

BufferId ListWriter::home(Index unit) const {
  if (unit == 0) return layout_.table_slot;
  return unit == model_.head_unit() ? layout_.head_slot : layout_.resident[Layout::at(unit - 1)];
}

void ListWriter::states_up() {
  for (Index u = 0; u < choices_.device_states; ++u)
    add({.op = OpCode::state_up, .stream = StreamId::fetch, .unit = id(u)},
        {{layout_.host_weights[Layout::at(u)], Role::host_weights, Access::read},
         {layout_.host_state[Layout::at(u)], Role::host_state, Access::read},
         {home(u), Role::weights, Access::write},
         {layout_.device_state[Layout::at(u)], Role::device_state, Access::write}});
}

void ListWriter::update_on_device(Index unit) {
  const Index elements = slice_elements(unit);
  const BufferId slot = home(unit);
  const BufferId state = layout_.device_state[Layout::at(unit)];
  const ops::Work work = ops::work_of(ops::AdamW{.slice = {.count = elements,
                                                           .gradient_type = choices_.wire(),
                                                           .moment_type = choices_.moments,
                                                           .master = choices_.master},
                                                 .coefficients = {}});
  add({.op = OpCode::device_update,
       .unit = id(unit),
       .cost = {.slab_bytes = static_cast<Index>(work.bytes),
                .launches = static_cast<Index>(model_.unit(unit).params.size())}},
      {{layout_.device_gradient[Layout::at(unit)], Role::wire, Access::read},
       {slot, Role::weights, Access::read_write},
       {state, Role::device_state, Access::read_write}});
  // It costs nothing in a step that nobody asks for the state of.
  add({.op = OpCode::state_down, .stream = StreamId::offload, .unit = id(unit)},
      {{slot, Role::weights, Access::read},
       {state, Role::device_state, Access::read},
       {layout_.host_weights[Layout::at(unit)], Role::host_weights, Access::write},
       {layout_.host_state[Layout::at(unit)], Role::host_state, Access::write}});
  all_gather(unit, 0, slot);
}

void ListWriter::update(Index unit) {
  if (choices_.updates_on_device(unit))
    update_on_device(unit);
  else
    add({.op = OpCode::update,
         .stream = StreamId::update,
         .unit = id(unit),
         .cost = {.host_elements = slice_elements(unit)}},
        {{layout_.host_gradient[Layout::at(unit)], Role::host_gradient, Access::read},
         {layout_.host_weights[Layout::at(unit)], Role::host_weights, Access::read_write},
         {layout_.host_state[Layout::at(unit)], Role::host_state, Access::read_write}});
  add({.op = OpCode::snapshot, .stream = StreamId::snapshot, .unit = id(unit)},
      {{layout_.host_weights[Layout::at(unit)], Role::host_weights, Access::read},
       {layout_.host_state[Layout::at(unit)], Role::host_state, Access::read}});
}

void ListWriter::updates_and_gathers() {
  update(0);
  gather_rows();
  for (Index u = 1; u < model_.unit_count(); ++u) update(u);
}

void ListWriter::gather_rows() {
  for (Index wave = 0; wave < static_cast<Index>(layout_.host_rows.size()); ++wave)
    add({.op = OpCode::gather, .stream = StreamId::update, .unit = 0, .wave = id(wave)},
        {{layout_.host_weights[0], Role::host_weights, Access::read},
         {layout_.host_rows[Layout::at(wave)], Role::destination, Access::write}});
}

void ListWriter::all_gather(Index unit, Index wave, BufferId slot) {
  if (choices_.slicing.count == 1) return;
  const Index bytes = slice_elements(unit) * size_of(choices_.compute.type);
  add({.op = OpCode::all_gather,
       .stream = StreamId::gather,
       .unit = id(unit),
       .wave = id(wave),
       .cost = {.peer_bytes = bytes * (choices_.slicing.count - 1)}},
      {{slot, Role::weights, Access::read_write}});
}

void ListWriter::fetch(Index unit, Index wave, BufferId slot) {
  if (choices_.updates_on_device(unit)) return;
  const Index bytes = slice_elements(unit) * size_of(choices_.compute.type);
  add({.op = OpCode::fetch,
       .stream = StreamId::fetch,
       .unit = id(unit),
       .wave = id(wave),
       .cost = {.link_bytes = bytes}},
      {{layout_.host_weights[Layout::at(unit)], Role::host_weights, Access::read},
       {slot, Role::weights, Access::write}});
  all_gather(unit, wave, slot);
}

void ListWriter::fetch_embedding(Index wave) {
  const Index element = size_of(choices_.compute.type);
  const bool tied = model_.config().tied_embeddings;
  if (choices_.embedding == EmbeddingMode::rows) {
    const BufferId host_rows = layout_.host_rows[Layout::at(wave)];
    const Index bytes = choices_.micro_batch.tokens() * layout_.wave_micro_batches *
                        model_.config().hidden * element;
    add({.op = OpCode::fetch,
         .stream = StreamId::fetch,
         .unit = 0,
         .wave = id(wave),
         .cost = {.link_bytes = bytes}},
        {{host_rows, Role::source, Access::read},
         {layout_.rows, Role::destination, Access::write}});
  }
  if (choices_.embedding == EmbeddingMode::table || tied) fetch(0, wave, layout_.table_slot);
}

void ListWriter::embed(Index wave, Index micro_batch, BufferId output) {
  const bool rows = choices_.embedding == EmbeddingMode::rows;
  add({.op = OpCode::embed,
       .unit = 0,
       .micro_batch = id(micro_batch),
       .wave = id(wave),
       .cost = costs_.embed()},
      {{rows ? -1 : layout_.table_slot, Role::weights, Access::read},
       {rows ? layout_.rows : -1, Role::rows, Access::read},
       {layout_.batch_of[Layout::at(micro_batch)], Role::batch, Access::read},
       {output, Role::output, Access::write}});
}

void ListWriter::release_embedding() {
  if (layout_.table_slot < 0 || choices_.updates_on_device(0)) return;
  add({.op = OpCode::release, .unit = 0}, {{layout_.table_slot, Role::weights, Access::write}});
}

void ListWriter::fetch_head(Index wave) { fetch(model_.head_unit(), wave, layout_.head_slot); }

void ListWriter::release_head() {
  if (choices_.updates_on_device(model_.head_unit())) return;
  add({.op = OpCode::release, .unit = id(model_.head_unit())},
      {{layout_.head_slot, Role::weights, Access::write}});
}

BufferId ListWriter::hold(Index block, Index wave) {
  BufferId& slot = slot_of_[Layout::at(block)];
  if (slot >= 0) return slot;
  slot = block < choices_.resident ? layout_.resident[Layout::at(block)] : free_slots_.acquire();
  fetch(block + 1, wave, slot);
  return slot;
}

void ListWriter::release(Index block, Index wave) {
  if (choices_.updates_on_device(block + 1)) return;
  BufferId& slot = slot_of_[Layout::at(block)];
  require(slot >= 0, "a slot is released by the block that holds it");
  add({.op = OpCode::release, .unit = id(block + 1), .wave = id(wave)},
      {{slot, Role::weights, Access::write}});
  if (block >= choices_.resident) free_slots_.release(slot);
  slot = -1;
}

void ListWriter::forward(Index b, Index wave, Index micro_batch, BufferId kept, BufferId input,
                         BufferId output) {
  add({.op = OpCode::forward,
       .unit = id(b + 1),
       .micro_batch = id(micro_batch),
       .wave = id(wave),
       .cost = costs_.forward(b)},
      {{slot_of_[Layout::at(b)], Role::weights, Access::read},
       {layout_.constants, Role::constants, Access::read},
       {input, Role::input, Access::read},
       {output, Role::output, Access::write},
       {kept, Role::kept, Access::write},
       {layout_.recomputed[0], Role::recomputed, Access::write},
       {layout_.temporary, Role::temporary, Access::write}});
}

void ListWriter::download_losses() {
  const Index bytes = choices_.step_tokens() * 4;
  add({.op = OpCode::download, .stream = StreamId::offload, .cost = {.link_bytes = bytes}},
      {{layout_.losses, Role::source, Access::read},
       {layout_.host_losses, Role::destination, Access::write}});
}

void ListWriter::collect(bool gradients) {
  std::vector<Operand> operands = {{layout_.host_losses, Role::host_results, Access::read},
                                   {layout_.host_logits, Role::host_results, Access::read}};
  // Written, in the sense that it hands them over: host work of the next body is ordered behind
  // this one wait, and never waits for the device itself.
  for (const BufferId rows : layout_.host_rows)
    operands.push_back({rows, Role::host_results, Access::read_write});
  if (gradients) {
    operands.push_back({layout_.host_partials, Role::host_partials, Access::read});
    for (const BufferId gradient : layout_.host_gradient)
      operands.push_back({gradient, Role::host_gradient, Access::read_write});
  }
  builder_.add({.op = OpCode::collect, .stream = StreamId::host}, operands);
}

}  // namespace megatrain
