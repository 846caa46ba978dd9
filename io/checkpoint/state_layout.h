#pragma once
/// @file
/// The training state of a model as named datasets: what a checkpoint stores, and in which shard.
/// It follows from the whole model alone, so checkpoints know no number of processes.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/store/host_store.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io {

/// The parts of a parameter's state.
enum class StatePart : std::uint8_t { master, exp_avg, exp_avg_sq };
inline constexpr StatePart kStateParts[] = {StatePart::master, StatePart::exp_avg,
                                            StatePart::exp_avg_sq};

/// What of a state is stored, and how: a training state by default.
struct StateForm {
  std::span<const StatePart> parts = kStateParts;
  DType masters = DType::f32;  ///< of a training state always
  DType moments = DType::f32;  ///< as they are kept while training
  [[nodiscard]] DType type(StatePart part) const {
    return part == StatePart::master ? masters : moments;
  }
};
/// Weights without moments.
inline constexpr StateForm kWeightsAlone = {.parts = std::span(kStateParts).first<1>()};

/// The groups of weights, and of all that belongs to the optimizer.
inline constexpr std::string_view kParamsGroup = "/params/";
inline constexpr std::string_view kOptimizerGroup = "/optim/";

/// The attribute of a dataset of states that says how they are kept while training: the name of a
/// DType.
inline constexpr std::string_view kStateFormat = "state_format";

/// "/params/NAME", "/optim/exp_avg/NAME", "/optim/exp_avg_sq/NAME".
std::string state_path(StatePart part, std::string_view parameter);

/// One part of one parameter.
struct StateTensor {
  Index unit = 0;
  const ParamDesc* param = nullptr;  ///< of the model that the layout was made from
  StatePart part = StatePart::master;
  DType type = DType::f32;
  [[nodiscard]] std::string path() const { return state_path(part, param->name); }
  /// Of the whole tensor, which is what files hold.
  [[nodiscard]] Index bytes() const { return param->whole_elements() * size_of(type); }
};

/// A run of whole units.
struct StateShard {
  std::string name;                  ///< "shard_00000.h5"
  std::vector<StateTensor> tensors;  ///< unit by unit, and part by part in each
};

/// "shard_00000.h5".
std::string shard_name(Index shard);

/// Cuts on unit boundaries: a shard ends before the unit that would carry it past `shard_bytes`.
std::vector<StateShard> state_shards(const Model& model, Index shard_bytes,
                                     const StateForm& form = {});
/// Bytes of a training state: all parts of all parameters of the whole model.
Index state_bytes(const Model& model, DType moments);

/// Other names of tied tensors, to the name they are stored under: Manifest::aliases.
std::map<std::string, std::string> tied_names(const Model& model);

/// How the tensor is described in its shard.
Hdf5DatasetSpec dataset_spec(const StateTensor& tensor);
/// The same for the root of every file of a checkpoint.
std::vector<Hdf5Attribute> root_attributes(Index step);

/// Elements of a tensor (of the store's part of it) from `first` on, out of a store that holds
/// them, exactly.
/// @param bytes  whole elements of tensor.type, aligned to it: masters as fp32, moments as they
///               are kept
void read_state(const HostStore& store, const StateTensor& tensor, Index first,
                std::span<std::byte> bytes);
/// And into it. Moments that the store keeps in another type than `values` had are rounded to
/// nearest, ties to even. @throws UserError for a master that the store's format cannot hold, and
/// for a moment that no step can have made: one that is not finite, or a second one below 0.
/// Nothing is written then
void write_state(HostStore& store, const StateTensor& tensor, Index first,
                 std::span<const float> values);

}  // namespace megatrain::io
