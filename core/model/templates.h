#pragma once
/// @file
/// Layer templates: stateless code of one kind of unit. A template owns no tensor; weights,
/// activations and gradients come in by pointer at each call, and it enqueues ops on one stream.
///
/// Gradients are written (or added to) tensor by tensor. What lies between tensors, and rows of a
/// learned position table at and beyond the sequence length, is never touched: whoever allocates
/// an accumulator clears it once, and those elements stay zero.
///
/// Every pointer is 256-byte aligned. A model outlives its templates.
///
/// A template of one of several parts of a model takes the group in which it meets the others. What
/// goes in and out of it (boundaries, gradient streams, losses) is whole, and the same on each
/// part.

#include <optional>

#include "core/model/model.h"
#include "core/model/pieces.h"
#include "core/ops/ops.h"

namespace megatrain {

/// Sequences and tokens a sequence of one micro-batch.
struct MicroBatchShape {
  Index batch = 0;
  Index sequence = 0;
  [[nodiscard]] constexpr Index tokens() const { return batch * sequence; }
  bool operator==(const MicroBatchShape&) const = default;
};

/// How a unit computes: what, together with shapes, decides its bits.
struct ComputeConfig {
  DType type = DType::f32;
  ops::AttentionBackend attention = ops::AttentionBackend::own;
  Index head_chunk = 1024;  ///< tokens whose logits exist at once
};

/// What of a block's intermediates survives from forward to backward; the rest is recomputed.
/// Norms, rotary positions after a qk-norm, and the activation function are cheap and always are.
enum class Keep : std::uint8_t {
  boundary,   ///< nothing but the unit's input
  attention,  ///< also q, k, v, attention output, softmax statistics, middle residual
  all,        ///< also gate and up (or the first MLP product)
};

/// Device pointers of one visit of a block. Types: weights and activations in ComputeConfig::type.
struct BlockBuffers {
  const std::byte* weights = nullptr;  ///< the unit's slab
  const void* input = nullptr;         ///< [tokens, hidden], the boundary
  void* output = nullptr;              ///< [tokens, hidden]; may be input
  std::byte* kept = nullptr;           ///< kept_bytes(keep): written by forward, read later
  std::byte* recomputed = nullptr;     ///< recomputed_bytes(keep): alive recompute..backward
  std::byte* temporary = nullptr;      ///< temporary_bytes(): dead after each call
  void* gradient_stream = nullptr;     ///< [tokens, hidden]; in d(output), out d(input)
  float* gradient = nullptr;           ///< the unit's fp32 accumulator, slab layout
  bool accumulate = false;             ///< false: overwrite it (first micro-batch)
  const float* rope_cosine = nullptr;  ///< [>= sequence, head_dim / 2]
  const float* rope_sine = nullptr;
};

/// One decoder block: norm, attention, residual, norm, MLP, residual.
class Block {
 public:
  Block(const Model& model, Index unit, const ComputeConfig& compute, MicroBatchShape shape);

  [[nodiscard]] Index kept_bytes(Keep keep) const;
  [[nodiscard]] Index recomputed_bytes(Keep keep) const;
  [[nodiscard]] Index temporary_bytes() const;

  /// output = block(input); fills `kept`. Uses `recomputed` and `temporary` as scratch.
  void forward(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
               const PartGroup& parts = PartGroup::alone()) const;
  /// Fills `recomputed` from input and `kept`, each intermediate exactly once. With
  /// buffers.output also computes the output (inside a segment); without, never the down
  /// projection. Every bit equals forward's.
  void recompute(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
                 const PartGroup& parts = PartGroup::alone()) const;
  /// Needs recompute's results. Accumulates weight gradients and turns d(output) into d(input).
  /// May overwrite kept and recomputed.
  void backward(const ops::Ops& ops, Stream& stream, Keep keep, const BlockBuffers& buffers,
                const PartGroup& parts = PartGroup::alone()) const;

 private:
  friend class BlockPass;

  const ModelConfig* config_;
  ComputeConfig compute_;
  MicroBatchShape shape_;
  ops::AttentionShape attention_;
  Norm input_norm_, middle_norm_;
  std::optional<Norm> q_norm_, k_norm_;
  Linear qkv_, attention_output_, gate_up_, down_;
};

struct EmbeddingBuffers {
  const std::byte* weights = nullptr;  ///< the whole slab, or null when `rows` is used
  const void* rows = nullptr;          ///< gathered rows [uniques, hidden]; ids are renumbered
  const void* positions = nullptr;     ///< with rows: the learned positions [sequence, hidden]
  const std::int32_t* ids = nullptr;   ///< [tokens]
  void* output = nullptr;              ///< [tokens, hidden]
  // backward
  const void* gradient_stream = nullptr;  ///< d(output)
  const std::int32_t* order = nullptr;    ///< see ops::EmbeddingBackward, ids not renumbered
  const std::int32_t* begins = nullptr;
  const std::int32_t* unique = nullptr;
  Index uniques = 0;
  float* gradient = nullptr;  ///< slab layout; the table part zeroed or holding the head's share
  bool accumulate_positions = false;
};

class Embedding {
 public:
  Embedding(const Model& model, const ComputeConfig& compute, MicroBatchShape shape);
  /// The table may be divided by rows: each part looks up its own, the first adds positions, and
  /// the parts' results are summed.
  void forward(const ops::Ops& ops, Stream& stream, const EmbeddingBuffers& buffers,
               const PartGroup& parts = PartGroup::alone()) const;
  /// Always adds into the table's gradient (see EmbeddingBuffers::gradient): the rows that are this
  /// part's. The position table's gradient is found by every part.
  void backward(const ops::Ops& ops, Stream& stream, const EmbeddingBuffers& buffers) const;

 private:
  [[nodiscard]] ops::TableRows rows(bool gathered) const;

  const ModelConfig* config_;
  const Unit* unit_;
  VocabularyPart vocabulary_;
  ComputeConfig compute_;
  MicroBatchShape shape_;
};

struct HeadBuffers {
  const std::byte* weights = nullptr;     ///< the head's slab: final norm, and lm_head when untied
  const std::byte* table = nullptr;       ///< the embedding's slab when tied
  const void* input = nullptr;            ///< [tokens, hidden]
  const std::int32_t* targets = nullptr;  ///< [tokens]; negative: not counted
  float* losses = nullptr;                ///< [tokens]
  std::byte* temporary = nullptr;         ///< temporary_bytes()
  // with gradient
  void* gradient_stream = nullptr;  ///< out: d(input); may be input
  float* gradient = nullptr;        ///< the head's accumulator
  float* table_gradient = nullptr;  ///< the embedding's accumulator when tied
  bool accumulate = false;          ///< false: the first chunk overwrites both
  float scale = 1;                  ///< 1 / valid tokens of the whole step
};

/// Final norm, logits in token chunks, loss and its gradient. Where the vocabulary is divided, each
/// part has its ids' logits of a chunk; what the loss needs of the others' is three numbers a
/// token.
class Head {
 public:
  Head(const Model& model, const ComputeConfig& compute, MicroBatchShape shape);
  [[nodiscard]] Index temporary_bytes() const;
  /// Loss, and when buffers.gradient_stream is given forward and backward in one visit
  /// (dW of a chunk before its dX).
  void visit(const ops::Ops& ops, Stream& stream, const HeadBuffers& buffers,
             const PartGroup& parts = PartGroup::alone()) const;
  /// Logits [count, vocabulary] in the compute type of the tokens first..first+count-1 of input.
  void logits(const ops::Ops& ops, Stream& stream, const HeadBuffers& buffers, Index first,
              Index count, void* out, const PartGroup& parts = PartGroup::alone()) const;

 private:
  const ModelConfig* config_;  ///< of this part
  Index whole_vocabulary_;
  VocabularyPart tokens_;
  Partition partition_;
  ComputeConfig compute_;
  MicroBatchShape shape_;
  friend class HeadPass;

  Norm norm_;
  Linear vocabulary_;
};

}  // namespace megatrain
