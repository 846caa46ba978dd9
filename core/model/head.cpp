#include <algorithm>
#include <array>

#include "core/model/templates.h"

namespace megatrain {

namespace {

/// Rows of logits begin at multiples of this many elements: aligned for the matrix products
/// whatever the size of the vocabulary.
constexpr Index kLogitAlignment = 64;

Index logit_pitch(const ModelConfig& config) {
  return round_up(config.vocabulary, kLogitAlignment);
}

/// The parts of the head's temporary memory, in bytes.
struct HeadLayout {
  HeadLayout(const ModelConfig& config, const Partition& partition, const ComputeConfig& compute,
             Index tokens) {
    const Index element = size_of(compute.type);
    const Index chunk = std::min(compute.head_chunk, tokens);
    normed = layout.take(tokens * config.hidden * element);
    rstd = layout.take(tokens * size_of(DType::f32));
    mean = layout.take(tokens * size_of(DType::f32));
    logits = layout.take(chunk * logit_pitch(config) * element);
    // Without other parts there is nothing to gather.
    const Index parts = partition.count > 1 ? partition.count : 0;
    statistics = layout.take(parts * ops::kLogitStatistics * chunk * size_of(DType::f32));
    gathered = layout.take(parts * config.vocabulary * element);
    workspace_bytes =
        std::max(ops::kGemmWorkspace, ops::norm_backward_workspace(tokens, config.hidden));
    workspace = layout.take(workspace_bytes);
  }
  BufferLayout layout;
  Index normed, rstd, mean, logits, workspace, workspace_bytes;
  Index statistics;  ///< of a chunk: [parts, 3, chunk]
  Index gathered;    ///< one token's logits of all parts
};

/// The product with the vocabulary, whose weight lies in the embedding's slab when tied.
Linear vocabulary_piece(const Model& model) {
  const ModelConfig& config = model.part_config();
  const Unit& owner = model.unit(config.tied_embeddings ? 0 : model.head_unit());
  const ParamRole weight = config.tied_embeddings ? ParamRole::token_table : ParamRole::lm_head;
  // [vocabulary, hidden] in every family, without a bias.
  const Linear piece(owner, config.hidden, false, std::array{Linear::Part{.weight = weight}});
  return piece.with_pitch(logit_pitch(config));
}

}  // namespace

/// One call of the head on some rows of its input.
class HeadPass {
 public:
  HeadPass(const Head& head, const ops::Ops& ops, Stream& stream, const HeadBuffers& buffers,
           const PartGroup& parts)
      : head_(head),
        buffers_(buffers),
        layout_(*head.config_, head.partition_, head.compute_, head.shape_.tokens()),
        launch_{.ops = ops,
                .stream = stream,
                .type = head.compute_.type,
                .workspace = {.data = buffers.temporary + layout_.workspace,
                              .bytes = layout_.workspace_bytes},
                .parts = parts} {}

  void normalise(Index first, Index rows) const {
    head_.norm_.forward(launch_, rows, buffers_.weights,
                        advance(buffers_.input, first * head_.config_->hidden, launch_.type),
                        normed(0), statistics());
  }

  void logits(Index first, Index rows) const {
    head_.vocabulary_.forward(launch_, rows, vocabulary_weights(), normed(first), chunk_logits());
  }

  void dense_logits(Index rows, void* out) const {
    if (head_.partition_.count > 1) return gather_logits(rows, out);
    head_.vocabulary_.with_pitch(head_.config_->vocabulary)
        .forward(launch_, rows, vocabulary_weights(), normed(0), out);
  }

  void loss(Index first, Index rows, bool gradient) const {
    if (head_.partition_.count > 1) return loss_of_part(first, rows, gradient);
    launch_.ops.run(launch_.stream, ops::CrossEntropy{.tokens = rows,
                                                      .vocabulary = head_.config_->vocabulary,
                                                      .stride = logit_pitch(*head_.config_),
                                                      .type = launch_.type,
                                                      .logits = chunk_logits(),
                                                      .targets = buffers_.targets + first,
                                                      .losses = buffers_.losses + first,
                                                      .gradient = gradient,
                                                      .scale = buffers_.scale});
  }

  /// The chunk's share of dW, then its rows of d(normed) over the rows of normed.
  void backward_logits(Index first, Index rows, bool accumulate) const {
    float* gradient = head_.config_->tied_embeddings ? buffers_.table_gradient : buffers_.gradient;
    head_.vocabulary_.backward_weight(launch_, rows, chunk_logits(), normed(first), gradient,
                                      accumulate);
    head_.vocabulary_.backward_input(launch_, rows, vocabulary_weights(), chunk_logits(),
                                     normed(first));
  }

  void backward_norm(Index rows) const {
    // The op reads its input while it writes: over the input itself it would read its own result.
    const bool in_place = buffers_.gradient_stream == buffers_.input;
    void* dx = in_place ? normed(0) : buffers_.gradient_stream;
    head_.norm_.backward(launch_, rows, buffers_.weights, buffers_.input, statistics(), normed(0),
                         nullptr, dx, buffers_.gradient, buffers_.accumulate);
    if (in_place)
      launch_.stream.copy(buffers_.gradient_stream, dx,
                          rows * head_.config_->hidden * size_of(launch_.type));
  }

 private:
  /// The parts tell one another their share of the softmax's denominator.
  void loss_of_part(Index first, Index rows, bool gradient) const {
    auto* all = reinterpret_cast<float*>(buffers_.temporary + layout_.statistics);
    const Index count = ops::kLogitStatistics * rows;
    float* own = all + head_.partition_.index * count;
    launch_.ops.run(launch_.stream, ops::LogitStatistics{.tokens = rows,
                                                         .vocabulary = head_.tokens_.count,
                                                         .stride = logit_pitch(*head_.config_),
                                                         .first = head_.tokens_.first,
                                                         .type = launch_.type,
                                                         .logits = chunk_logits(),
                                                         .targets = buffers_.targets + first,
                                                         .statistics = own});
    launch_.parts.gather(launch_.stream, own, all, count, DType::f32);
    launch_.ops.run(launch_.stream, ops::CrossEntropyOfPart{.tokens = rows,
                                                            .vocabulary = head_.tokens_.count,
                                                            .stride = logit_pitch(*head_.config_),
                                                            .columns = head_.config_->vocabulary,
                                                            .first = head_.tokens_.first,
                                                            .type = launch_.type,
                                                            .logits = chunk_logits(),
                                                            .targets = buffers_.targets + first,
                                                            .parts = head_.partition_.count,
                                                            .statistics = all,
                                                            .losses = buffers_.losses + first,
                                                            .gradient = gradient,
                                                            .scale = buffers_.scale});
  }

  /// Row by row, because a row's parts lie apart from one another until they are gathered.
  void gather_logits(Index rows, void* out) const {
    const Index share = head_.config_->vocabulary;
    std::byte* all = buffers_.temporary + layout_.gathered;
    for (Index row = 0; row < rows; ++row) {
      head_.vocabulary_.forward(launch_, 1, vocabulary_weights(), normed(row), chunk_logits());
      launch_.parts.gather(launch_.stream, chunk_logits(), all, share, launch_.type);
      launch_.stream.copy(advance(out, row * head_.whole_vocabulary_, launch_.type), all,
                          head_.whole_vocabulary_ * size_of(launch_.type));
    }
  }

  [[nodiscard]] const std::byte* vocabulary_weights() const {
    return head_.config_->tied_embeddings ? buffers_.table : buffers_.weights;
  }
  [[nodiscard]] std::byte* normed(Index row) const {
    return buffers_.temporary + layout_.normed +
           row * head_.config_->hidden * size_of(launch_.type);
  }
  [[nodiscard]] void* chunk_logits() const { return buffers_.temporary + layout_.logits; }
  [[nodiscard]] Norm::Statistics statistics() const {
    return {.rstd = reinterpret_cast<float*>(buffers_.temporary + layout_.rstd),
            .mean = head_.norm_.kind() == ops::NormKind::layer
                        ? reinterpret_cast<float*>(buffers_.temporary + layout_.mean)
                        : nullptr};
  }

  const Head& head_;
  const HeadBuffers& buffers_;
  HeadLayout layout_;
  Launch launch_;
};

Head::Head(const Model& model, const ComputeConfig& compute, MicroBatchShape shape)
    : config_(&model.part_config()),
      whole_vocabulary_(model.config().vocabulary),
      tokens_(model.vocabulary()),
      partition_(model.partition()),
      compute_(compute),
      shape_(shape),
      norm_(*config_, model.unit(model.head_unit()), ParamRole::final_norm,
            ParamRole::final_norm_bias),
      vocabulary_(vocabulary_piece(model)) {
  require(compute.head_chunk >= 1, "a head chunk without tokens");
}

Index Head::temporary_bytes() const {
  return HeadLayout(*config_, partition_, compute_, shape_.tokens()).layout.bytes();
}

void Head::visit(const ops::Ops& ops, Stream& stream, const HeadBuffers& buffers,
                 const PartGroup& parts) const {
  const HeadPass pass(*this, ops, stream, buffers, parts);
  const Index tokens = shape_.tokens();
  const bool gradient = buffers.gradient_stream != nullptr;
  pass.normalise(0, tokens);
  for (Index first = 0; first < tokens; first += compute_.head_chunk) {
    const Index rows = std::min(compute_.head_chunk, tokens - first);
    pass.logits(first, rows);
    pass.loss(first, rows, gradient);
    if (gradient) pass.backward_logits(first, rows, buffers.accumulate || first > 0);
  }
  if (gradient) pass.backward_norm(tokens);
}

void Head::logits(const ops::Ops& ops, Stream& stream, const HeadBuffers& buffers, Index first,
                  Index count, void* out, const PartGroup& parts) const {
  const HeadPass pass(*this, ops, stream, buffers, parts);
  pass.normalise(first, count);
  pass.dense_logits(count, out);
}

}  // namespace megatrain
