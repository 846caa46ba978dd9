#pragma once
/// @file
/// Where a block's intermediates lie in the memory that the engine gives it.

#include <array>
#include <cstddef>

#include "core/model/templates.h"

namespace megatrain {

/// Intermediates of one visit, T tokens. `rstd` and `mean` are fp32 norm statistics.
enum class Intermediate : std::uint8_t {
  input_normed,   ///< [T, hidden]; then the gradient of it
  input_rstd,     ///< [T]
  input_mean,     ///< [T], LayerNorm only
  qkv,            ///< [T, qkv_width] packed; q and k after rope unless the model has a qk-norm
  qk,             ///< [T, (heads + kv_heads) * head_dim] after qk-norm and rope; qk-norm only
  q_rstd,         ///< [T, heads], qk-norm only
  k_rstd,         ///< [T, kv_heads], qk-norm only
  attended,       ///< [T, heads * head_dim]
  lse,            ///< [batch, heads, sequence] fp32
  middle,         ///< [T, hidden]: the residual stream between attention and MLP
  middle_normed,  ///< [T, hidden]; then the gradient of it
  middle_rstd,    ///< [T]
  middle_mean,    ///< [T], LayerNorm only
  gate_up,        ///< [T, 2 * intermediate] packed, or [T, intermediate]; then its gradient
  activated,      ///< [T, intermediate]; backward reuses its room, see BlockLayout
};
inline constexpr std::size_t kIntermediates = 15;

/// Offsets of all intermediates for one choice of what is kept.
///
/// Backward needs three more buffers, none of which costs memory: the gradient of `activated`
/// lies over it, and the gradients of `attended` and `qkv` share its room afterwards, when it is
/// dead; the room is the larger of the two uses.
class BlockLayout {
 public:
  BlockLayout(const ModelConfig& config, DType type, MicroBatchShape shape, Keep keep);

  [[nodiscard]] Index kept_bytes() const { return kept_.bytes(); }
  [[nodiscard]] Index recomputed_bytes() const { return recomputed_.bytes(); }

  [[nodiscard]] std::byte* locate(Intermediate what, const BlockBuffers& buffers) const;
  /// [T, heads * head_dim]
  [[nodiscard]] std::byte* attended_gradient(const BlockBuffers& buffers) const;
  /// [T, qkv_width]
  [[nodiscard]] std::byte* qkv_gradient(const BlockBuffers& buffers) const;

 private:
  struct Place {
    bool kept = false;
    Index offset = 0;
  };
  void put(Intermediate what, Index bytes, bool kept);

  std::array<Place, kIntermediates> places_{};
  BufferLayout kept_, recomputed_;
  Index qkv_gradient_ = 0;  ///< offset inside the room of `activated`
};

}  // namespace megatrain
