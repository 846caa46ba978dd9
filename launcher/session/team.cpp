#include "launcher/session/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <vector>

#include "io/checkpoint/checksum.h"

namespace megatrain::launcher {

namespace {

/// Longer than it takes the rendezvous to ask all ranks, or to lose one that is silent.
constexpr std::chrono::seconds kToFindTheCause{60};

Index number(const std::string& text) {
  Index value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

parallel::WorldOptions world_options(const TeamOptions& options) {
  parallel::WorldOptions world;
  world.configuration = io::checksum(options.configuration);
  world.device = options.device;
  if (options.on_trouble)
    world.on_trouble = [tell = options.on_trouble](const parallel::Trouble&) { tell(); };
  world.join_limit = std::chrono::seconds(options.patience);
  // Who hangs in a step is found by the watch, which must have its answer before a collective that
  // waits for it gives up and takes the blame.
  world.collective_timeout = Team::kSavePatience * world.join_limit + kToFindTheCause;
  return world;
}

}  // namespace

ModelRanks divide(const parallel::ProcessPlace& place, Index tensor_parallel, Index shard_group) {
  const auto there_are = [](int count, std::string_view what) {
    return fmt::format("there {} {} {}{}", count == 1 ? "is" : "are", count, what,
                       count == 1 ? "" : "s");
  };
  if (tensor_parallel > place.world || place.world % tensor_parallel != 0)
    throw UserError(fmt::format("--tensor-parallel is {}, but {}: it must divide them{}",
                                tensor_parallel, there_are(place.world, "rank"),
                                place.world == 1 ? " (megatrain launch starts several)" : ""));
  const auto parts = static_cast<int>(tensor_parallel);
  const int groups = place.world / parts;
  if (shard_group == 0) {
    // Slices are gathered best where ranks are near; nodes of different size have no such groups.
    const bool even = place.world == place.local_size * place.nodes;
    const int near = even ? std::max(place.local_size / parts, 1) : groups;
    shard_group = groups % near == 0 ? near : groups;
  }
  if (shard_group > groups)
    throw UserError(fmt::format(
        "--shard-group is {}, but {}", shard_group,
        there_are(groups, parts == 1 ? "rank" : fmt::format("group of {} ranks", parts))));
  PerAxis<int> sizes(1);
  sizes[Axis::data] = groups;
  sizes[Axis::tensor] = parts;
  return {ProcessAxes(sizes), place.rank, static_cast<int>(shard_group)};
}

NodeShare node_share(const parallel::ProcessPlace& place, const ModelRanks& ranks) {
  return {place.local_size, place.local_rank, ranks.data().slicing()};
}

Model part_of(const ModelConfig& config, const ModelRanks& ranks) {
  try {
    return Model(config, ranks.partition());
  } catch (const UserError& error) {
    if (ranks.partition().count == 1) throw;
    throw UserError(Error::with_context(
        fmt::format("--tensor-parallel {}", ranks.partition().count), error.what()));
  }
}

Team::Team(const parallel::ProcessPlace& place, const ModelRanks& ranks, const TeamOptions& options)
    : ranks_(ranks),
      patience_(std::chrono::seconds(options.patience)),
      world_(place, world_options(options)) {}

StepGroups Team::connect() {
  return ranks_.connect([this](const std::string& name, std::span<const int> ranks) {
    return world_.connect(name, ranks);
  });
}

void Team::agree(Machine& machine) {
  const auto least = [&](std::string_view name, Index value) {
    Index smallest = value;
    for (const std::string& text : world_.exchange(name, std::to_string(value), kAsLongAsTheyLive))
      smallest = std::min(smallest, number(text));
    return smallest;
  };
  machine.device_memory = least("device memory", machine.device_memory);
  machine.host_memory = least("host memory", machine.host_memory);
  machine.device_reserve = -least("device reserve", -machine.device_reserve);
}

void Team::require_same(std::string_view what, const std::string& text) {
  const std::vector<std::string> texts = world_.exchange(what, text, kAsLongAsTheyLive);
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      throw UserError(fmt::format("{} of rank {} differs from that of rank 0:\n  {}\n  {}", what,
                                  rank, texts[rank], texts[0]));
}

std::vector<int> Team::differing(std::span<const int> group, std::string_view what,
                                 const std::string& text) {
  const std::vector<std::string> all = world_.exchange(what, text, kAsLongAsTheyLive);
  std::vector<std::string> texts;  // of the group
  for (const int rank : group) texts.push_back(all[static_cast<std::size_t>(rank)]);
  const std::string& usual = *std::ranges::max_element(
      texts, {}, [&](const std::string& one) { return std::ranges::count(texts, one); });
  std::vector<int> differing;
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i] != usual) differing.push_back(group[i]);
  return differing;
}

bool Team::all(std::string_view what, bool value) {
  return world_.all(what, value, kAsLongAsTheyLive);
}

unsigned Team::any(std::string_view what, unsigned bits) {
  unsigned all = 0;
  for (const std::string& text : world_.exchange(what, std::to_string(bits), kAsLongAsTheyLive))
    all |= static_cast<unsigned>(number(text));
  return all;
}

void Team::barrier(std::string_view what) { world_.barrier(what, kAsLongAsTheyLive); }

void Team::in_step(std::string_view what, bool saves) {
  world_.working_on(what, saves ? kSavePatience * patience_ : patience_);
}

void Team::at_work(std::string_view what) { world_.working_on(what, {}); }

}  // namespace megatrain::launcher
