#include "core/plan/forward_list.h"

namespace megatrain {

ForwardListWriter::ForwardListWriter(const Model& model, const Choices& choices,
                                     const Layout& layout, PlanBuilder& builder)
    : model_(model), choices_(choices), layout_(layout), writer_(model, choices, layout, builder) {}

void ForwardListWriter::prologue(InstructionList& list) {
  writer_.begin(list);
  writer_.upload_constants();
}

void ForwardListWriter::body(InstructionList& list) {
  writer_.begin(list);
  writer_.stage_and_upload();
  writer_.gather_rows();
  for (Index w = 0; w < choices_.waves; ++w) wave(w);
  if (choices_.purpose == Purpose::evaluate) {
    writer_.download_losses();
  } else {
    const Index bytes =
        choices_.micro_batch.batch * model_.config().vocabulary * size_of(choices_.compute.type);
    writer_.add(
        {.op = OpCode::download, .stream = StreamId::offload, .cost = {.link_bytes = bytes}},
        {{layout_.logits, Role::source, Access::read},
         {layout_.host_logits, Role::destination, Access::write}});
  }
  writer_.collect(false);
}

void ForwardListWriter::wave(Index wave) {
  const Index first = choices_.wave_begin(wave);
  const Index end = choices_.wave_begin(wave + 1);
  const bool tied = model_.config().tied_embeddings;
  // Nothing is read twice: each micro-batch has one activation buffer, overwritten block by block.
  const auto activation = [&](Index m) { return layout_.stream[Layout::at(m - first)]; };

  writer_.fetch_embedding(wave);
  for (Index m = first; m < end; ++m) writer_.embed(wave, m, activation(m));
  if (!tied) writer_.release_embedding();
  for (Index b = 0; b < model_.config().layers; ++b) {
    writer_.hold(b, wave);
    for (Index m = first; m < end; ++m)
      writer_.forward(b, wave, m, -1, activation(m), activation(m));
    if (b >= choices_.resident || wave + 1 == choices_.waves) writer_.release(b, wave);
  }

  writer_.fetch_head(wave);
  for (Index m = first; m < end; ++m) {
    const bool evaluate = choices_.purpose == Purpose::evaluate;
    writer_.add({.op = evaluate ? OpCode::evaluate : OpCode::logits,
                 .unit = static_cast<std::int32_t>(model_.head_unit()),
                 .micro_batch = static_cast<std::int32_t>(m),
                 .wave = static_cast<std::int32_t>(wave),
                 .cost = evaluate ? writer_.costs().evaluate() : writer_.costs().logits()},
                {{layout_.head_slot, Role::weights, Access::read},
                 {tied ? layout_.table_slot : -1, Role::table, Access::read},
                 {layout_.batch_of[Layout::at(m)], Role::batch, Access::read},
                 {evaluate ? layout_.losses_of[Layout::at(m)] : layout_.logits, Role::losses,
                  Access::write},
                 {activation(m), Role::input, Access::read},
                 {layout_.temporary, Role::temporary, Access::write}});
  }
  writer_.release_head();
  if (tied) writer_.release_embedding();
}

}  // namespace megatrain
