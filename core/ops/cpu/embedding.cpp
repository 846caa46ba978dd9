#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/pieces.h"
#include "core/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

template <class T>
void embed_of(const EmbeddingForward& op, Range tokens) {
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    const bool here = op.rows.have(op.ids[t]);
    const T* row = static_cast<const T*>(op.table) + (op.ids[t] - op.rows.first) * op.width;
    const T* position = op.positions == nullptr
                            ? nullptr
                            : static_cast<const T*>(op.positions) + t % op.sequence * op.width;
    T* out = static_cast<T*>(op.out) + t * op.width;
    if (!here || position == nullptr) {
      const T* only = here ? row : position;
      const std::size_t bytes = static_cast<std::size_t>(op.width) * sizeof(T);
      only == nullptr ? std::memset(out, 0, bytes) : std::memcpy(out, only, bytes);
      continue;
    }
    for_lanes(op.width, [&](Index c, auto span) HWY_ATTR {
      store(hn::Add(load(row + c, span), load(position + c, span)), out + c, span);
    });
  }
}

template <class T>
void embedding_gradient_of(const EmbeddingBackward& op, Range uniques) {
  const auto* dy = static_cast<const T*>(op.dy);
  for (Index u = uniques.begin; u < uniques.end; ++u) {
    if (!op.rows.have(op.unique[u])) continue;
    float* out = op.dtable + (op.unique[u] - op.rows.first) * op.width;
    for_lanes(op.width, [&](Index c, auto span) HWY_ATTR {
      FloatVec sum = hn::Zero(Floats());
      for (Index i = op.begins[u]; i < op.begins[u + 1]; ++i)
        sum = hn::Add(sum, load(dy + Index{op.order[i]} * op.width + c, span));
      store(hn::Add(load(out + c, span), sum), out + c, span);
    });
  }
}

template <class T>
void position_gradient_of(const PositionBackward& op, Range positions) {
  const auto* dy = static_cast<const T*>(op.dy);
  for (Index s = positions.begin; s < positions.end; ++s) {
    float* out = op.dpositions + s * op.width;
    for_lanes(op.width, [&](Index c, auto span) HWY_ATTR {
      FloatVec sum = hn::Zero(Floats());
      for (Index b = 0; b < op.batch; ++b)
        sum = hn::Add(sum, load(dy + (b * op.sequence + s) * op.width + c, span));
      if (op.accumulate) sum = hn::Add(load(out + c, span), sum);
      store(sum, out + c, span);
    });
  }
}

void embed(const EmbeddingForward& op, Range tokens) {
  op.type == DType::f32 ? embed_of<float>(op, tokens) : embed_of<bfloat16>(op, tokens);
}
void embedding_gradient(const EmbeddingBackward& op, Range uniques) {
  op.type == DType::f32 ? embedding_gradient_of<float>(op, uniques)
                        : embedding_gradient_of<bfloat16>(op, uniques);
}
void position_gradient(const PositionBackward& op, Range positions) {
  op.type == DType::f32 ? position_gradient_of<float>(op, positions)
                        : position_gradient_of<bfloat16>(op, positions);
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {
HWY_EXPORT(embed);
HWY_EXPORT(embedding_gradient);
HWY_EXPORT(position_gradient);
}  // namespace

void embedding_forward(OpState& /*state*/, Stream& stream, const EmbeddingForward& op) {
  require(op.positions == nullptr || op.sequence > 0, "position embeddings need a sequence length");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const Index row = op.width * size_of(op.type);
    announce_read(op.ids, op.tokens * 4);
    for (Index t = 0; t < op.tokens; ++t)
      if (op.rows.have(op.ids[t]))
        announce_read(static_cast<const std::byte*>(op.table) + (op.ids[t] - op.rows.first) * row,
                      row);
    if (op.positions != nullptr)
      announce_read(op.positions, std::min(op.tokens, op.sequence) * row);
    announce_write(op.out, op.tokens * row);
    for_pieces(own.pool(), row_pieces(op.tokens, op.width),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(embed)(op, rows); });
  });
}

void embedding_backward(OpState& /*state*/, Stream& stream, const EmbeddingBackward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    if (op.uniques == 0) return;
    announce_read(op.begins, (op.uniques + 1) * 4);
    announce_read(op.unique, op.uniques * 4);
    const Index first = op.begins[0];
    const Index last = op.begins[op.uniques];
    announce_read(op.order + first, (last - first) * 4);
    const Index row = op.width * size_of(op.type);
    for (Index i = first; i < last; ++i)
      announce_read(static_cast<const std::byte*>(op.dy) + op.order[i] * row, row);
    for (Index u = 0; u < op.uniques; ++u)
      if (op.rows.have(op.unique[u]))
        announce_write(op.dtable + (op.unique[u] - op.rows.first) * op.width, op.width * 4);
    for_pieces(own.pool(), row_pieces(op.uniques, op.width),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(embedding_gradient)(op, rows); });
  });
}

void position_backward(OpState& /*state*/, Stream& stream, const PositionBackward& op) {
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    announce_read(op.dy, op.batch * op.sequence * op.width * size_of(op.type));
    announce_write(op.dpositions, op.sequence * op.width * 4);
    for_pieces(own.pool(), row_pieces(op.sequence, op.width),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(position_gradient)(op, rows); });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
