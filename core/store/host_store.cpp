#include "core/store/host_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/host_memory.h"
#include "core/base/split_master.h"

namespace megatrain {

namespace {

constexpr Index kInitializePiece = Index{1} << 16;

/// First element of each unit's slice, and the end of the last one.
std::vector<Index> unit_offsets(const Model& model, const Slicing& slicing) {
  std::vector<Index> offsets = {0};
  for (const Unit& unit : model.units())
    offsets.push_back(checked_add(offsets.back(), slicing.slice(unit.slab_elements)));
  return offsets;
}

}  // namespace

StoreBytes store_bytes(const Model& model, MasterFormat master, Index gradient_bytes,
                       StoreContents contents, const Slicing& slicing, DType moments) {
  require(gradient_bytes == 2 || gradient_bytes == 4, "a gradient has 2 or 4 bytes an element");
  const Index elements = unit_offsets(model, slicing).back();
  (void)checked_mul(elements, 20);  // the most that an element takes: the sums below fit
  StoreBytes bytes;
  bytes.weights = elements * size_of(weight_type(master));
  if (contents == StoreContents::weights) return bytes;
  bytes.remainder = elements * remainder_bytes(master);
  bytes.gradient = elements * gradient_bytes;
  bytes.exp_avg = elements * size_of(moments);
  bytes.exp_avg_sq = elements * size_of(moments);
  return bytes;
}

struct HostStore::State {
  State(const Model& of, const StoreOptions& options)
      : model(of),
        contents(options.contents),
        master(options.master),
        moments(options.moments),
        gradient_bytes(contents == StoreContents::training ? options.gradient_bytes : 0),
        slicing(options.slicing),
        offsets(unit_offsets(model, slicing)),
        bytes(store_bytes(model, master, options.gradient_bytes, contents, slicing, moments)) {}

  Model model;
  StoreContents contents;
  MasterFormat master;
  DType moments;
  Index gradient_bytes;
  Slicing slicing;
  std::vector<Index> offsets;
  StoreBytes bytes;
  HostArena weights, remainder, gradient, exp_avg, exp_avg_sq;

  [[nodiscard]] ElementRange held(Index unit, const ParamDesc& param) const {
    require(unit >= 0 && unit < model.unit_count(), "a unit that the store has not");
    require(param.offset + param.elements() <= model.unit(unit).slab_elements,
            "a parameter that the unit has not");
    return slicing.held(model.unit(unit), param);
  }
  /// Where elements [first, first + count) of `param` begin in the arenas, in elements.
  Index locate(Index unit, const ParamDesc& param, Index first, std::size_t count) const {
    const ElementRange range = held(unit, param);
    const auto elements = static_cast<Index>(count);
    if (first < range.first || elements > range.last - first)
      throw LogicError(fmt::format(
          "internal error: elements [{}, {}) of '{}' are not in the store: it has [{}, {})", first,
          first + elements, param.name, range.first, range.last));
    return offsets[static_cast<std::size_t>(unit)] + param.offset + first -
           slicing.begin(model.unit(unit).slab_elements);
  }
  std::byte* slab(const HostArena& arena, Index unit, Index element_bytes) const {
    require(unit >= 0 && unit < model.unit_count(), "a unit that the store has not");
    if (!arena.data()) return nullptr;
    return arena.data() + offsets[static_cast<std::size_t>(unit)] * element_bytes;
  }
};

HostStore::HostStore(const Model& model, const StoreOptions& options, Device& device,
                     ThreadPool& pool)
    : state_(std::make_unique<State>(model, options)) {
  State& state = *state_;
  const Index total = state.bytes.total();
  require_host_memory(
      state.contents == StoreContents::training ? "the training state" : "the weights", total);

  Index touched = 0;
  const auto make = [&](const char* name, Index bytes) {
    const Index elements = state.offsets.back();
    std::vector<Index> cuts;
    for (const Index offset : state.offsets)
      cuts.push_back(elements == 0 ? 0 : offset * (bytes / elements));
    HostArenaOptions arena;
    arena.cuts = cuts;
    arena.touched = [&](Index count) {
      touched += count;
      if (options.progress) options.progress(touched, total);
    };
    return HostArena(name, bytes, device, pool, arena);
  };
  state.weights = make("weights", state.bytes.weights);
  state.remainder = make("weight remainders", state.bytes.remainder);
  state.gradient = make("gradients", state.bytes.gradient);
  state.exp_avg = make("first moments", state.bytes.exp_avg);
  state.exp_avg_sq = make("second moments", state.bytes.exp_avg_sq);
}

HostStore::~HostStore() = default;

const Model& HostStore::model() const { return state_->model; }
StoreContents HostStore::contents() const { return state_->contents; }
MasterFormat HostStore::master_format() const { return state_->master; }
DType HostStore::moment_type() const { return state_->moments; }
StoreBytes HostStore::bytes() const { return state_->bytes; }
ArenaSeconds HostStore::seconds() const {
  ArenaSeconds seconds;
  for (const HostArena* arena : {&state_->weights, &state_->remainder, &state_->gradient,
                                 &state_->exp_avg, &state_->exp_avg_sq})
    seconds += arena->seconds();
  return seconds;
}
Index HostStore::gradient_bytes() const { return state_->gradient_bytes; }
const Slicing& HostStore::slicing() const { return state_->slicing; }
ElementRange HostStore::held(Index unit, const ParamDesc& param) const {
  return state_->held(unit, param);
}

std::byte* HostStore::weights(Index unit) const {
  return state_->slab(state_->weights, unit, size_of(weight_type(state_->master)));
}
std::int16_t* HostStore::remainder(Index unit) const {
  return reinterpret_cast<std::int16_t*>(
      state_->slab(state_->remainder, unit, sizeof(std::int16_t)));
}
std::byte* HostStore::gradient(Index unit) const {
  return state_->slab(state_->gradient, unit, state_->gradient_bytes);
}
std::byte* HostStore::exp_avg(Index unit) const {
  return state_->slab(state_->exp_avg, unit, size_of(state_->moments));
}
std::byte* HostStore::exp_avg_sq(Index unit) const {
  return state_->slab(state_->exp_avg_sq, unit, size_of(state_->moments));
}

void HostStore::read_master(Index unit, const ParamDesc& param, Index first,
                            std::span<float> values) const {
  const Index begin = state_->locate(unit, param, first, values.size());
  if (values.empty()) return;
  if (state_->master == MasterFormat::fp32) {
    std::memcpy(values.data(), state_->weights.data() + begin * 4, values.size_bytes());
    return;
  }
  const auto* high = reinterpret_cast<const bfloat16*>(state_->weights.data()) + begin;
  if (state_->remainder.data() == nullptr) {
    for (float& value : values) value = to_float(*high++);
    return;
  }
  const auto* remainder = reinterpret_cast<const std::int16_t*>(state_->remainder.data()) + begin;
  for (float& value : values) value = join_master({*high++, *remainder++});
}

void HostStore::write_master(Index unit, const ParamDesc& param, Index first,
                             std::span<const float> values) {
  const Index begin = state_->locate(unit, param, first, values.size());
  if (values.empty()) return;
  const auto bad = std::find_if_not(values.begin(), values.end(), is_master);
  if (bad != values.end())
    throw UserError(fmt::format(
        "element {} of '{}' is {}: weights must be finite and of magnitude {} at most, so that "
        "they are finite in bf16 too",
        first + (bad - values.begin()), param.name, *bad, kLargestMaster));
  if (state_->master == MasterFormat::fp32) {
    std::memcpy(state_->weights.data() + begin * 4, values.data(), values.size_bytes());
    return;
  }
  auto* high = reinterpret_cast<bfloat16*>(state_->weights.data()) + begin;
  if (state_->remainder.data() == nullptr) {
    for (const float value : values) *high++ = split_master(value).high;
    return;
  }
  auto* remainder = reinterpret_cast<std::int16_t*>(state_->remainder.data()) + begin;
  for (const float value : values) {
    const SplitMaster split = split_master(value);
    *high++ = split.high;
    *remainder++ = split.remainder;
  }
}

void initialize(HostStore& store, std::uint64_t seed, ThreadPool& pool) {
  const Model& model = store.model();
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    for (const ParamDesc& param : model.unit(unit).params) {
      const ElementRange held = store.held(unit, param);
      pool.for_each(ceil_div(held.count(), kInitializePiece), [&](Index piece) {
        const Index first = held.first + piece * kInitializePiece;
        std::vector<float> values(
            static_cast<std::size_t>(std::min(kInitializePiece, held.last - first)));
        initial_values(param, seed, first, values);
        store.write_master(unit, param, first, values);
      });
    }
  }
}

}  // namespace megatrain
