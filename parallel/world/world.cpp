#include "parallel/world/world.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "core/engine/solo_communicator.h"
#include "parallel/rendezvous/variables.h"
#include "parallel/world/addresses.h"
#include "parallel/world/rendezvous_store.h"

namespace megatrain::parallel {

namespace {

/// So that keys with it stay within the rendezvous's limit.
constexpr std::size_t kMaxCommunicatorName = 128;

/// Where the others reach this rank, by what all say of their way to the rendezvous.
std::string agree_on_address(Rendezvous& rendezvous, Milliseconds limit) {
  const Ends& own = rendezvous.ends();
  std::vector<Ends> all;
  for (const std::string& text :
       rendezvous.exchange("addresses", own.here + " " + own.there, limit)) {
    const std::size_t space = text.find(' ');
    all.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return reachable_address(all, rendezvous.rank());
}

}  // namespace

World::World(const ProcessPlace& place, const WorldOptions& options)
    : place_(place),
      device_(options.device),
      collective_timeout_(options.collective_timeout),
      exceptions_(std::uncaught_exceptions()),
      living_(std::make_shared<LivingCommunicators>()),
      collectives_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (size() == 1) return;
  rendezvous_ = std::make_shared<Rendezvous>(
      place,
      RendezvousOptions{.configuration = options.configuration,
                        .join_limit = options.join_limit,
                        .silence = options.silence,
                        .progress = [collectives = collectives_] { return collectives->load(); },
                        .on_trouble =
                            [living = living_, tell = options.on_trouble](const Trouble& what) {
                              if (tell) tell(what);
                              living->end(what);
                            },
                        .on_post = {},
                        .log = options.log});
  address_ = agree_on_address(*rendezvous_, options.join_limit);
}

World::~World() {
  if (std::uncaught_exceptions() > exceptions_) fail("it ended by an exception");
}

Rendezvous* World::others() const {
  if (rendezvous_ == nullptr)
    if (const auto failed = living_->trouble()) throw RankLost(*failed);
  return rendezvous_.get();
}

std::unique_ptr<Communicator> World::connect(const std::string& name, std::span<const int> ranks) {
  const auto own = std::ranges::find(ranks, rank());
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  if (own == ranks.end() || sorted.front() < 0 || sorted.back() >= size() ||
      std::ranges::adjacent_find(sorted) != sorted.end())
    throw LogicError(fmt::format(
        "internal error: rank {} of {} connects '{}' among ranks {}: each once, itself included",
        rank(), size(), name, fmt::join(ranks, ", ")));
  require(name.size() <= kMaxCommunicatorName, "a communicator with a long name");
  if (ranks.size() == 1) return living_->add(make_solo_communicator(name));

  // The n-th call of one rank meets the n-th of the others. Lines of the same name go apart by
  // their ranks.
  const std::uint64_t line = stable_hash(fmt::format("{}\n{}", name, fmt::join(ranks, " ")));
  Connector connector;
  int use = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!connector_)
      connector_ = make_connector({.device = device_,
                                   .address = address_,
                                   .timeout = collective_timeout_,
                                   .on_collective = [count = collectives_] { ++*count; }});
    connector = connector_;
    use = connected_[line]++;
  }
  auto store = std::make_shared<RendezvousStore>(rendezvous_,
                                                 fmt::format("communicator/{:016x}/{}/", line, use),
                                                 std::vector<int>(ranks.begin(), ranks.end()));
  return living_->add(connector(std::move(store), name, static_cast<int>(own - ranks.begin()),
                                static_cast<int>(ranks.size())));
}

std::vector<std::string> World::exchange(std::string_view name, std::string_view value,
                                         Milliseconds limit) {
  if (Rendezvous* all = others()) return all->exchange(name, value, limit);
  return {std::string(value)};
}

void World::barrier(std::string_view name, Milliseconds limit) { exchange(name, "", limit); }

bool World::any(std::string_view name, bool value, Milliseconds limit) {
  Rendezvous* all = others();
  return all == nullptr ? value : all->any(name, value, limit);
}

bool World::all(std::string_view name, bool value, Milliseconds limit) {
  Rendezvous* all = others();
  return all == nullptr ? value : all->all(name, value, limit);
}

void World::set(std::string_view key, std::string_view value) {
  if (Rendezvous* all = others()) return all->set(key, value);
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
}

std::string World::get(std::string_view key, Milliseconds limit) {
  if (Rendezvous* all = others()) return all->get(key, limit);
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end())
    throw Error(fmt::format("nobody has set '{}', and there is no other rank that could", key));
  return found->second;
}

void World::working_on(std::string_view doing, Milliseconds limit) {
  if (rendezvous_) rendezvous_->working_on(doing, limit);
}

void World::fail(std::string_view reason) {
  if (rendezvous_) rendezvous_->fail(reason);
  // The rendezvous tells this rank of others' trouble only.
  living_->end(rendezvous_ ? *rendezvous_->trouble()
                           : Trouble{rank(), fmt::format("rank {} failed: {}", rank(), reason)});
}

std::optional<Trouble> World::trouble() const {
  return rendezvous_ ? rendezvous_->trouble() : living_->trouble();
}

}  // namespace megatrain::parallel
