#pragma once
/// @file
/// Trains one step of a model by calling its layer templates in a plain loop: the smallest engine
/// there can be. Everything that a template may only write starts as poison.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/templates.h"
#include "tests/model/reference_model.h"
#include "tests/ops/op_test.h"

namespace megatrain::modeltest {

/// Weights large enough that every part of a model matters; norms and biases not trivial.
/// Rounded to `type`.
reference::Tensors random_weights(const Model& model, DType type, std::uint64_t seed);

/// Tokens and targets, some of which are not counted.
reference::Batch random_batch(const ModelConfig& config, MicroBatchShape shape, std::uint64_t seed);
/// Targets that count.
Index counted(const reference::Batch& batch);

/// Of the angle between two gradients.
double cosine(const optest::Values& a, const optest::Values& b);

struct RunOptions {
  Keep keep = Keep::boundary;
  bool recompute_output = false;    ///< recompute makes the outputs too, in place over the inputs
  bool head_in_place = false;       ///< the head's gradient goes over its input
  bool gathered_embedding = false;  ///< the embedding sees only the rows it needs
};

struct Outcome {
  optest::Values losses;         ///< of all micro-batches, one after another
  reference::Tensors gradients;  ///< by name
  optest::Bytes bits;            ///< losses and all accumulators
};

class TemplateRig {
 public:
  TemplateRig(optest::OpBench& bench, const ModelConfig& config, const ComputeConfig& compute,
              MicroBatchShape shape, std::uint64_t seed = 1);
  /// @param weights  of every tensor; rounded to the compute type
  TemplateRig(optest::OpBench& bench, const ModelConfig& config, const ComputeConfig& compute,
              MicroBatchShape shape, reference::Tensors weights);
  /// Checks that no template wrote beyond the temporary memory that it asked for.
  ~TemplateRig() { static_cast<void>(temporary_.bytes()); }
  TemplateRig(const TemplateRig&) = delete;
  TemplateRig& operator=(const TemplateRig&) = delete;

  [[nodiscard]] const Model& model() const { return model_; }
  /// As the device holds them.
  [[nodiscard]] const reference::Tensors& weights() const { return weights_; }

  /// Forward and backward of all micro-batches, gradients accumulated.
  Outcome train(std::span<const reference::Batch> micro_batches, double scale,
                const RunOptions& options = {});
  /// Losses of one micro-batch, and logits of some of its tokens, without gradients.
  optest::Values losses(const reference::Batch& batch);
  optest::Values logits(const reference::Batch& batch, Index first, Index count);

 private:
  /// An accumulator whose tensors are poison and whose padding is zero.
  optest::Buffer fresh_accumulator(const Unit& unit);
  void check_padding(const Unit& unit, const std::vector<float>& accumulator);
  /// The head's input for a batch.
  optest::Buffer run_to_head(const reference::Batch& batch);
  void embed(const reference::Batch& batch, optest::Buffer& output, bool gathered);
  [[nodiscard]] optest::Buffer activations() {
    return bench_.output(compute_.type, shape_.tokens() * model_.config().hidden);
  }
  [[nodiscard]] const std::byte* weights_of(Index unit) const {
    return slabs_[static_cast<std::size_t>(unit)].as<std::byte>();
  }
  [[nodiscard]] Block block(Index layer) const { return {model_, layer + 1, compute_, shape_}; }
  [[nodiscard]] HeadBuffers head_buffers(const optest::Buffer& input, const optest::Buffer& targets,
                                         const optest::Buffer& losses) const;
  [[nodiscard]] Index temporary_bytes() const;

  optest::OpBench& bench_;
  Model model_;
  ComputeConfig compute_;
  MicroBatchShape shape_;
  reference::Tensors weights_;
  std::vector<optest::Buffer> slabs_;
  std::vector<optest::Buffer> rope_;  ///< cosine, sine; empty without rope
  optest::Buffer temporary_;
};

}  // namespace megatrain::modeltest
