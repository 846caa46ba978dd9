#include <fmt/format.h>

#include "core/model/templates.h"

namespace megatrain {

Embedding::Embedding(const Model& model, const ComputeConfig& compute, MicroBatchShape shape)
    : config_(&model.part_config()),
      unit_(&model.unit(0)),
      vocabulary_(model.vocabulary()),
      compute_(compute),
      shape_(shape) {
  if (config_->learned_positions && shape.sequence > config_->max_positions)
    throw UserError(
        fmt::format("the model has {} learned positions, but a sequence has {} tokens; choose "
                    "shorter sequences",
                    config_->max_positions, shape.sequence));
}

void Embedding::forward(const ops::Ops& ops, Stream& stream, const EmbeddingBuffers& buffers,
                        const PartGroup& parts) const {
  const ParamDesc* token_table = unit_->find(ParamRole::token_table);
  const ParamDesc* position_table = unit_->find(ParamRole::position_table);
  const bool gathered = buffers.rows != nullptr;
  const void* positions = nullptr;
  if (position_table != nullptr && token_table->partition.first())  // once in the sum over parts
    positions = gathered ? buffers.positions
                         : advance(buffers.weights, position_table->offset, compute_.type);
  ops.run(stream,
          ops::EmbeddingForward{
              .tokens = shape_.tokens(),
              .width = config_->hidden,
              .sequence = shape_.sequence,
              .type = compute_.type,
              .table = gathered ? buffers.rows
                                : advance(buffers.weights, token_table->offset, compute_.type),
              .rows = rows(gathered),
              .ids = buffers.ids,
              .positions = positions,
              .out = buffers.output});
  parts.sum(stream, buffers.output, shape_.tokens() * config_->hidden, compute_.type);
}

ops::TableRows Embedding::rows(bool gathered) const {
  if (gathered) return {};
  return {.first = vocabulary_.first, .count = vocabulary_.count};
}

void Embedding::backward(const ops::Ops& ops, Stream& stream,
                         const EmbeddingBuffers& buffers) const {
  ops.run(stream, ops::EmbeddingBackward{
                      .uniques = buffers.uniques,
                      .width = config_->hidden,
                      .type = compute_.type,
                      .dy = buffers.gradient_stream,
                      .order = buffers.order,
                      .begins = buffers.begins,
                      .unique = buffers.unique,
                      .rows = rows(false),
                      .dtable = buffers.gradient + unit_->find(ParamRole::token_table)->offset});
  const ParamDesc* position_table = unit_->find(ParamRole::position_table);
  if (position_table == nullptr) return;
  ops.run(stream, ops::PositionBackward{.batch = shape_.batch,
                                        .sequence = shape_.sequence,
                                        .width = config_->hidden,
                                        .type = compute_.type,
                                        .dy = buffers.gradient_stream,
                                        .dpositions = buffers.gradient + position_table->offset,
                                        .accumulate = buffers.accumulate_positions});
}

}  // namespace megatrain
