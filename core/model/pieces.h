#pragma once
/// @file
/// The pieces that layer templates are built from: they know where a slab holds their tensors and
/// issue ops; they own no memory.

#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/model/model.h"
#include "core/model/part_group.h"
#include "core/ops/ops.h"

namespace megatrain {

/// Where and how the pieces of one call run.
struct Launch {
  const ops::Ops& ops;
  Stream& stream;
  DType type = DType::f32;   ///< of weights and activations
  ops::Workspace workspace;  ///< enough for every op that the pieces issue
  const PartGroup& parts = PartGroup::alone();
};

/// The activation or weight `elements` after `base`, in the compute type.
template <class Pointer>
Pointer* advance(Pointer* base, Index elements, DType type) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const std::byte, std::byte>;
  return static_cast<Byte*>(base) + elements * size_of(type);
}

/// y = x . W^T + b, where W may be several tensors side by side (q|k|v, gate|up) whose results are
/// packed in one row. Tensors that lie in the slab without a gap are multiplied in one product.
///
/// In a model of several parts a weight that is divided along y ("column-parallel") has all of x
/// and its columns of y: forward is local, and dx is summed over the parts. One divided along x
/// ("row-parallel") has a share of the sum that y is: y is summed over the parts, the first of
/// which adds bias and residual, and backward is local.
class Linear {
 public:
  struct Part {
    ParamRole weight;
    std::optional<ParamRole> bias = {};  ///< the unit may lack it
  };

  /// @param in  width of x
  /// @param in_out  weights are stored [in, out]
  Linear(const Unit& unit, Index in, bool in_out, std::span<const Part> parts);

  /// The same piece with rows of y `pitch` elements apart (out() unless set).
  [[nodiscard]] Linear with_pitch(Index pitch) const;

  [[nodiscard]] Index in() const { return in_; }
  /// Width of y.
  [[nodiscard]] Index out() const { return out_; }
  /// Scratch that backward needs besides a Gemm's.
  [[nodiscard]] Index workspace_bytes(Index rows) const;

  /// y [rows, out] = x [rows, in] . W^T + b + residual; residual has y's shape, nullptr: none.
  void forward(const Launch& launch, Index rows, const std::byte* weights, const void* x, void* y,
               const void* residual = nullptr) const;
  /// dW and db (+)= from dy [rows, out] and the forward's x. Padding is not touched.
  void backward_weight(const Launch& launch, Index rows, const void* dy, const void* x,
                       float* gradient, bool accumulate) const;
  /// dx [rows, in] = dy . W.
  void backward_input(const Launch& launch, Index rows, const std::byte* weights, const void* dy,
                      void* dx) const;

 private:
  /// Adjacent tensors as one: offsets in slab elements, columns of the packed row.
  struct Range {
    Index weight = -1;
    Index bias = -1;
    Index column = 0;
    Index width = 0;
  };
  Index in_ = 0;
  Index out_ = 0;
  Index pitch_ = 0;
  bool in_out_ = false;
  Partition partition_;
  bool sums_y_ = false;          ///< divided along x
  bool sums_dx_ = false;         ///< divided along y
  std::vector<Range> forward_;   ///< merged where weights and biases both are adjacent
  std::vector<Range> backward_;  ///< merged where weights are
  std::vector<Range> biases_;    ///< merged where biases are
};

/// RMSNorm or LayerNorm with its weight (and bias) in a slab.
class Norm {
 public:
  Norm(const ModelConfig& config, const Unit& unit, ParamRole weight, ParamRole bias);
  /// RMSNorm over each head of a packed row (qk-norm), whatever the model's norm is.
  Norm(const ModelConfig& config, const Unit& unit, ParamRole weight);

  /// fp32 statistics of a forward pass; mean is used by the layer kind alone.
  struct Statistics {
    float* rstd = nullptr;
    float* mean = nullptr;
  };

  [[nodiscard]] ops::NormKind kind() const { return kind_; }
  [[nodiscard]] Index width() const { return width_; }

  /// y [rows, width] = norm(x), both dense.
  void forward(const Launch& launch, Index rows, const std::byte* weights, const void* x, void* y,
               Statistics statistics) const;
  void forward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
               ops::RowMap x_rows, void* y, ops::RowMap y_rows, Statistics statistics) const;
  /// dx = add + d(norm)/dx . dy, dense; add may be nullptr. dx may be add or dy.
  void backward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                Statistics statistics, const void* dy, const void* add, void* dx, float* gradient,
                bool accumulate) const;
  /// In place on dy.
  void backward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                ops::RowMap x_rows, Statistics statistics, void* dy, ops::RowMap dy_rows,
                float* gradient, bool accumulate) const;

 private:
  void backward(const Launch& launch, ops::NormBackward arguments, const std::byte* weights,
                Statistics statistics, float* gradient, bool accumulate) const;
  ops::NormKind kind_;
  Index width_ = 0;
  float eps_ = 0;
  Index weight_ = 0;
  Index bias_ = -1;
};

/// Hands out ranges of a buffer one after another, each aligned for every op.
class BufferLayout {
 public:
  /// Offset in bytes of a new range of `bytes`.
  Index take(Index bytes) {
    const Index offset = bytes_;
    bytes_ += round_up(bytes, kAlignment);
    return offset;
  }
  [[nodiscard]] Index bytes() const { return bytes_; }

 private:
  static constexpr Index kAlignment = 256;
  Index bytes_ = 0;
};

}  // namespace megatrain
