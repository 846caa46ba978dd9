#pragma once
/// @file
/// A model as the engine sees it: units, each with a slab of parameters.

#include <span>
#include <string>
#include <vector>

#include "core/model/config.h"

namespace megatrain {

/// Every tensor of a slab starts at a multiple of this many elements; the gap is zero padding.
inline constexpr Index kSlabAlignment = 2048;

enum class Init : std::uint8_t { normal, zeros, ones };

/// What a parameter is to its layer template, whatever its name. A fused qkv tensor is `qkv`; the
/// first matrix of a two-matrix MLP is `up`.
enum class ParamRole : std::uint8_t {
  token_table,
  position_table,
  input_norm,
  input_norm_bias,
  qkv,
  qkv_bias,
  q,
  k,
  v,
  q_bias,
  k_bias,
  v_bias,
  q_norm,
  k_norm,
  attention_output,
  attention_output_bias,
  middle_norm,
  middle_norm_bias,
  gate,
  gate_bias,
  up,
  up_bias,
  down,
  down_bias,
  final_norm,
  final_norm_bias,
  lm_head,
};

/// The one truth about a parameter.
struct ParamDesc {
  std::string name;          ///< in checkpoints and Hugging Face folders
  std::vector<Index> shape;  ///< as stored in files; row-major
  Index offset = 0;          ///< first element inside the unit's slab
  Init init = Init::normal;
  double init_std = 0;  ///< for Init::normal
  bool decay = true;    ///< weight decay applies (matrices; not norms, not biases)
  /// Other names of the same tensor (a tied lm_head.weight). One owner: one norm, one update.
  std::vector<std::string> aliases = {};
  ParamRole role = ParamRole::token_table;

  [[nodiscard]] Index elements() const;
  /// elements() rounded up to kSlabAlignment: the slab's room for it.
  [[nodiscard]] Index padded_elements() const { return round_up(elements(), kSlabAlignment); }
};

enum class UnitKind : std::uint8_t { embedding, block, head };

/// What streams as one piece.
struct Unit {
  UnitKind kind = UnitKind::block;
  Index layer = -1;  ///< of a block
  std::vector<ParamDesc> params;
  Index slab_elements = 0;  ///< padding included

  /// "embedding", "block 3", "head".
  [[nodiscard]] std::string name() const;
  /// The parameter with this role, or nullptr when the model has none.
  [[nodiscard]] const ParamDesc* find(ParamRole role) const;
};

/// Units in forward order: embedding, blocks 0..layers-1, head.
class Model {
 public:
  explicit Model(ModelConfig config);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::span<const Unit> units() const { return units_; }
  [[nodiscard]] const Unit& unit(Index i) const { return units_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Index unit_count() const { return static_cast<Index>(units_.size()); }
  [[nodiscard]] Index head_unit() const { return unit_count() - 1; }
  [[nodiscard]] Index max_block_elements() const;
  /// Parameters, tied ones once, without padding.
  [[nodiscard]] Index parameter_count() const;
  /// Parameters that multiply: all matrices but a pure input embedding (6N of model FLOPs).
  [[nodiscard]] Index multiplying_parameters() const;

 private:
  ModelConfig config_;
  std::vector<Unit> units_;
};

/// Model FLOPs of one trained token at `sequence`: 6 x multiplying parameters
/// + 6 x layers x (heads x head_dim) x sequence for causal attention; no recompute.
double model_flops_per_token(const Model& model, Index sequence);

/// Deterministic initial value of a parameter: a pure function of (seed, name, element), written
/// for elements [first, first + values.size()). Normal ones by Box-Muller on a counter-based
/// generator; no state, so any slicing gives the same values.
void initial_values(const ParamDesc& param, std::uint64_t seed, Index first,
                    std::span<float> values);

}  // namespace megatrain
