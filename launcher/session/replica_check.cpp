#include "launcher/session/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "io/checkpoint/checksum.h"

namespace megatrain::launcher {

namespace {

/// Of all that the store holds of a unit.
io::Checksum checksum_of(const HostStore& store, Index unit) {
  const Index elements = store.slicing().slice(store.model().unit(unit).slab_elements);
  io::ChecksumStream sum;
  const auto add = [&](const void* slice, Index element) {
    if (slice == nullptr) return;
    sum.add({static_cast<const std::byte*>(slice), static_cast<std::size_t>(elements * element)});
  };
  add(store.weights(unit), store.master_format() == MasterFormat::split ? 2 : 4);
  add(store.remainder(unit), sizeof(std::int16_t));
  add(store.exp_avg(unit), sizeof(float));
  add(store.exp_avg_sq(unit), sizeof(float));
  return sum.value();
}

}  // namespace

void ReplicaCheck::after(Index step) {
  if (every_ == 0 || step == 0 || step % every_ != 0 || team_.data().replicas() == 1) return;
  engine_.flush();
  const Model& model = store_.model();
  std::vector<io::Checksum> sums(static_cast<std::size_t>(model.unit_count()));
  pool_.for_each(model.unit_count(), [&](Index unit) {
    sums[static_cast<std::size_t>(unit)] = checksum_of(store_, unit);
  });
  const io::Checksum all = io::checksum(std::as_bytes(std::span(sums)));
  if (team_.all("replicas are equal", team_.differing("the state", io::to_text(all)).empty()))
    return;
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    const std::vector<int> ranks =
        team_.differing(model.unit(unit).name(), io::to_text(sums[static_cast<std::size_t>(unit)]));
    if (!ranks.empty())
      throw Error(fmt::format(
          "after step {} the replicas of a slice differ: {} on rank{} {} is not what the others "
          "hold. A machine has computed or kept something wrong; go on from a checkpoint before "
          "it, "
          "without that machine",
          step, model.unit(unit).name(), ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")));
  }
  throw Error(
      fmt::format("after step {} the replicas of another slice differ; its ranks say which", step));
}

}  // namespace megatrain::launcher
