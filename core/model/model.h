#pragma once
/// @file
/// A model as the engine sees it: units, each with a slab of parameters.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/model/config.h"
#include "core/model/partition.h"

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

/// The one truth about a parameter. In a model that is one of several parts, what it says of
/// elements is about this part's, and what has a name in files is the whole.
struct ParamDesc {
  std::string name;          ///< in checkpoints and Hugging Face folders
  std::vector<Index> shape;  ///< as stored in files, or this part's share of it; row-major
  Index offset = 0;          ///< first element inside the unit's slab
  Init init = Init::normal;
  double init_std = 0;  ///< for Init::normal
  bool decay = true;    ///< weight decay applies (matrices; not norms, not biases)
  /// Other names of the same tensor (a tied lm_head.weight). One owner: one norm, one update.
  std::vector<std::string> aliases = {};
  ParamRole role = ParamRole::token_table;
  ShardSpec shard = {};
  Partition partition = {};
  std::vector<Index> whole_shape = {};  ///< as stored in files

  /// Whether the model's norm counts it here: divided, or on the first part.
  [[nodiscard]] bool counted() const { return shard.divided() || partition.first(); }
  /// Visits elements [first, first + count) of a part as runs, which are in order in the whole
  /// parameter too. Rows that pad the part are in none.
  /// @param of  which part; all have the same shape
  void for_each_run(const Partition& of, Index first, Index count,
                    const std::function<void(const PartRun&)>& visit) const;
  /// The same of this part.
  void for_each_run(Index first, Index count,
                    const std::function<void(const PartRun&)>& visit) const {
    for_each_run(partition, first, count, visit);
  }
  [[nodiscard]] Index elements() const;
  [[nodiscard]] Index whole_elements() const;
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
  /// Whether there are several parts, each with a share of some parameter's gradient
  /// (ShardSpec::sum_gradient).
  [[nodiscard]] bool sums_over_parts() const;
};

/// The ids whose rows of the table are a part's.
struct VocabularyPart {
  Index first = 0;
  Index count = 0;  ///< ids that exist; the table may have rows beyond them
};

/// Units in forward order: embedding, blocks 0..layers-1, head.
class Model {
 public:
  /// @param partition  which part of it this is: units have this part's share of every parameter
  /// @throws UserError when a count does not divide, saying which numbers of parts work
  explicit Model(ModelConfig config, const Partition& partition = {});

  /// Of the whole model.
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  /// What the layers of this part compute: its share of heads, kv_heads, intermediate and
  /// vocabulary (rows of its table); all else as in config().
  [[nodiscard]] const ModelConfig& part_config() const { return part_config_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  [[nodiscard]] VocabularyPart vocabulary() const;
  [[nodiscard]] std::span<const Unit> units() const { return units_; }
  [[nodiscard]] const Unit& unit(Index i) const { return units_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Index unit_count() const { return static_cast<Index>(units_.size()); }
  [[nodiscard]] Index head_unit() const { return unit_count() - 1; }
  [[nodiscard]] Index max_block_elements() const;
  /// Parameters of this part, tied ones once, without padding.
  [[nodiscard]] Index parameter_count() const;
  /// Of the whole model.
  [[nodiscard]] Index whole_parameter_count() const;
  /// Parameters that multiply: all matrices but a pure input embedding (6N of model FLOPs).
  [[nodiscard]] Index multiplying_parameters() const;

 private:
  ModelConfig config_;
  Partition partition_;
  ModelConfig part_config_;
  std::vector<Unit> units_;
};

/// Refuses a number of parts that does not divide the model, and says which do.
/// @throws UserError
void validate(const ModelConfig& config, const Partition& partition);

/// Model FLOPs of this part for one trained token at `sequence`: 6 x multiplying parameters
/// + 6 x layers x (heads x head_dim) x sequence for causal attention; no recompute.
double model_flops_per_token(const Model& model, Index sequence);

/// Deterministic initial value of a parameter: a pure function of (seed, name, element of the whole
/// parameter), written for elements [first, first + values.size()) of this part's. Normal ones by
/// Box-Muller on a counter-based generator; no state, so any slicing and any division gives the
/// same values. Rows that pad a part are zero.
void initial_values(const ParamDesc& param, std::uint64_t seed, Index first,
                    std::span<float> values);

}  // namespace megatrain
