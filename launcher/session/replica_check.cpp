#include "launcher/session/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "io/checkpoint/checksum.h"

namespace megatrain::launcher {

namespace {

/// Of all that the store holds of some elements of a unit's slab.
void add_states(io::ChecksumStream& sum, const HostStore& store, Index unit, Index first,
                Index count) {
  first -= store.slicing().begin(store.model().unit(unit).slab_elements);
  const auto add = [&](const void* slice, Index element) {
    if (slice == nullptr || count <= 0) return;
    sum.add({static_cast<const std::byte*>(slice) + first * element,
             static_cast<std::size_t>(count * element)});
  };
  add(store.weights(unit), size_of(weight_type(store.master_format())));
  add(store.remainder(unit), sizeof(std::int16_t));
  add(store.exp_avg(unit), size_of(store.moment_type()));
  add(store.exp_avg_sq(unit), size_of(store.moment_type()));
}

/// What replicas have in common: all that they hold.
void add_slice(io::ChecksumStream& sum, const HostStore& store, Index unit) {
  const Index elements = store.model().unit(unit).slab_elements;
  add_states(sum, store, unit, store.slicing().begin(elements), store.slicing().slice(elements));
}

/// What the parts of a model have in common: the tensors that nobody divides.
void add_undivided(io::ChecksumStream& sum, const HostStore& store, Index unit) {
  for (const ParamDesc& param : store.model().unit(unit).params) {
    if (param.shard.divided()) continue;
    const ElementRange held = store.held(unit, param);
    add_states(sum, store, unit, param.offset + held.first, held.count());
  }
}

}  // namespace

void ReplicaCheck::after(Index step) {
  const ModelRanks& ranks = team_.ranks();
  const bool replicas = ranks.data().replicas() > 1, parts = ranks.partition().count > 1;
  if (every_ == 0 || step == 0 || step % every_ != 0 || !(replicas || parts)) return;
  engine_.flush();
  if (replicas) compare(step, "the replicas of a slice", ranks.replica_ranks(), add_slice);
  if (parts) compare(step, "what all parts of the model hold", ranks.part_ranks(), add_undivided);
}

void ReplicaCheck::compare(Index step, std::string_view what, std::span<const int> group,
                           const Common& common) {
  const Model& model = store_.model();
  std::vector<io::Checksum> sums(static_cast<std::size_t>(model.unit_count()));
  pool_.for_each(model.unit_count(), [&](Index unit) {
    io::ChecksumStream sum;
    common(sum, store_, unit);
    sums[static_cast<std::size_t>(unit)] = sum.value();
  });
  const io::Checksum all = io::checksum(std::as_bytes(std::span(sums)));
  if (team_.all("states are equal", team_.differing(group, what, io::to_text(all)).empty())) return;
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    const std::vector<int> ranks = team_.differing(
        group, model.unit(unit).name(), io::to_text(sums[static_cast<std::size_t>(unit)]));
    if (!ranks.empty())
      throw Error(fmt::format(
          "after step {} {} differ: {} on rank{} {} is not what the others hold. A machine has "
          "computed or kept something wrong; go on from a checkpoint before it, without that "
          "machine",
          step, what, model.unit(unit).name(), ranks.size() == 1 ? "" : "s",
          fmt::join(ranks, ", ")));
  }
  throw Error(fmt::format("after step {} {} differ on other ranks, which say where", step, what));
}

}  // namespace megatrain::launcher
