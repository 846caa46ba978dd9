#include "core/model/block_layout.h"

#include <algorithm>

namespace megatrain {

BlockLayout::BlockLayout(const ModelConfig& config, DType type, MicroBatchShape shape, Keep keep) {
  const Index tokens = shape.tokens();
  const auto matrix = [&](Index columns) { return tokens * columns * size_of(type); };
  const auto statistics = [&](Index columns) { return tokens * columns * size_of(DType::f32); };
  const bool layer_norm = config.norm == ops::NormKind::layer;
  const bool keep_attention = keep != Keep::boundary;
  const bool keep_mlp = keep == Keep::all;

  put(Intermediate::input_normed, matrix(config.hidden), false);
  put(Intermediate::input_rstd, statistics(1), false);
  if (layer_norm) put(Intermediate::input_mean, statistics(1), false);

  put(Intermediate::qkv, matrix(config.qkv_width()), keep_attention);
  if (config.qk_norm) {
    put(Intermediate::qk, matrix((config.heads + config.kv_heads) * config.head_dim), false);
    put(Intermediate::q_rstd, statistics(config.heads), false);
    put(Intermediate::k_rstd, statistics(config.kv_heads), false);
  }
  const Index attended = matrix(config.heads * config.head_dim);
  put(Intermediate::attended, attended, keep_attention);
  put(Intermediate::lse, statistics(config.heads), keep_attention);
  put(Intermediate::middle, matrix(config.hidden), keep_attention);

  put(Intermediate::middle_normed, matrix(config.hidden), false);
  put(Intermediate::middle_rstd, statistics(1), false);
  if (layer_norm) put(Intermediate::middle_mean, statistics(1), false);

  const Index products = config.mlp == MlpKind::swiglu ? 2 : 1;
  put(Intermediate::gate_up, matrix(products * config.intermediate), keep_mlp);

  BufferLayout gradients;
  gradients.take(attended);
  qkv_gradient_ = gradients.take(matrix(config.qkv_width()));
  put(Intermediate::activated, std::max(matrix(config.intermediate), gradients.bytes()), false);
}

void BlockLayout::put(Intermediate what, Index bytes, bool kept) {
  places_[static_cast<std::size_t>(what)] = {
      .kept = kept, .offset = kept ? kept_.take(bytes) : recomputed_.take(bytes)};
}

std::byte* BlockLayout::locate(Intermediate what, const BlockBuffers& buffers) const {
  const Place& place = places_[static_cast<std::size_t>(what)];
  return (place.kept ? buffers.kept : buffers.recomputed) + place.offset;
}

std::byte* BlockLayout::attended_gradient(const BlockBuffers& buffers) const {
  return locate(Intermediate::activated, buffers);
}

std::byte* BlockLayout::qkv_gradient(const BlockBuffers& buffers) const {
  return locate(Intermediate::activated, buffers) + qkv_gradient_;
}

}  // namespace megatrain
