#include "io/checkpoint/state_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace megatrain::io {

namespace {

/// Elements [first, first + count) of a moment of the tensor in the slice of its slab.
std::span<std::byte> moments(const HostStore& store, const StateTensor& tensor, Index first,
                             Index count) {
  const ElementRange held = store.held(tensor.unit, *tensor.param);
  require(first >= held.first && count <= held.last - first, "moments that the store has not");
  std::byte* const slice = tensor.part == StatePart::exp_avg ? store.exp_avg(tensor.unit)
                                                             : store.exp_avg_sq(tensor.unit);
  const Index begin = store.slicing().begin(store.model().unit(tensor.unit).slab_elements);
  const Index width = size_of(store.moment_type());
  return {slice + (tensor.param->offset + first - begin) * width,
          static_cast<std::size_t>(count * width)};
}

void check_moments(const StateTensor& tensor, Index first, std::span<const float> values) {
  const bool second = tensor.part == StatePart::exp_avg_sq;
  const auto bad = std::ranges::find_if_not(
      values, [&](float value) { return std::isfinite(value) && !(second && value < 0); });
  if (bad != values.end())
    throw UserError(fmt::format("element {} of '{}' is {}: {} of AdamW must be finite{}",
                                first + (bad - values.begin()), tensor.path(), *bad,
                                second ? "second moments" : "first moments",
                                second ? " and not below 0" : ""));
}

}  // namespace

std::string state_path(StatePart part, std::string_view parameter) {
  switch (part) {
    case StatePart::master:
      return fmt::format("{}{}", kParamsGroup, parameter);
    case StatePart::exp_avg:
      return fmt::format("{}exp_avg/{}", kOptimizerGroup, parameter);
    case StatePart::exp_avg_sq:
      return fmt::format("{}exp_avg_sq/{}", kOptimizerGroup, parameter);
  }
  throw LogicError("no such part");
}

std::string shard_name(Index shard) { return fmt::format("shard_{:05}.h5", shard); }

std::vector<StateShard> state_shards(const Model& model, Index shard_bytes, const StateForm& form) {
  std::vector<StateShard> shards;
  Index filled = 0;
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    std::vector<StateTensor> tensors;
    Index bytes = 0;
    for (const StatePart part : form.parts)
      for (const ParamDesc& param : model.unit(unit).params) {
        tensors.push_back({unit, &param, part, form.type(part)});
        bytes = checked_add(bytes, tensors.back().bytes());
      }
    if (shards.empty() || filled > shard_bytes - bytes) {
      shards.push_back({shard_name(static_cast<Index>(shards.size())), {}});
      filled = 0;
    }
    filled += bytes;
    auto& all = shards.back().tensors;
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  return shards;
}

Index state_bytes(const Model& model, DType moments) {
  const StateForm form{.moments = moments};
  Index each = 0;
  for (const StatePart part : form.parts) each += size_of(form.type(part));
  return checked_mul(model.whole_parameter_count(), each);
}

std::map<std::string, std::string> tied_names(const Model& model) {
  std::map<std::string, std::string> names;
  for (const Unit& unit : model.units())
    for (const ParamDesc& param : unit.params)
      for (const std::string& alias : param.aliases) names[alias] = param.name;
  return names;
}

Hdf5DatasetSpec dataset_spec(const StateTensor& tensor) {
  Hdf5DatasetSpec spec{tensor.path(), file_type(tensor.type), tensor.param->whole_shape};
  if (tensor.part != StatePart::master) {
    spec.attributes.push_back({std::string(kStateFormat), std::string(name(tensor.type))});
  } else {
    std::string names;
    for (const std::string& alias : tensor.param->aliases)
      names += (names.empty() ? "" : " ") + alias;
    if (!names.empty()) spec.attributes.push_back({"tied_names", names});
  }
  return spec;
}

std::vector<Hdf5Attribute> root_attributes(Index step) {
  return {{"format", "megatrain-checkpoint"}, {"format_version", Index{1}}, {"step", step}};
}

void read_state(const HostStore& store, const StateTensor& tensor, Index first,
                std::span<std::byte> bytes) {
  const Index count = std::ssize(bytes) / size_of(tensor.type);
  if (tensor.part == StatePart::master) {
    require(tensor.type == DType::f32, "masters are read as fp32");
    return store.read_master(
        tensor.unit, *tensor.param, first,
        {reinterpret_cast<float*>(bytes.data()), static_cast<std::size_t>(count)});
  }
  require(tensor.type == store.moment_type(), "moments are read as they are kept");
  const auto from = moments(store, tensor, first, count);
  std::memcpy(bytes.data(), from.data(), from.size());
}

void write_state(HostStore& store, const StateTensor& tensor, Index first,
                 std::span<const float> values) {
  if (tensor.part == StatePart::master)
    return store.write_master(tensor.unit, *tensor.param, first, values);
  check_moments(tensor, first, values);
  from_floats(store.moment_type(), values, moments(store, tensor, first, std::ssize(values)));
}

}  // namespace megatrain::io
