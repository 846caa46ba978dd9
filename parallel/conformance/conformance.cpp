#include "parallel/conformance/conformance.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/scatter.h"
#include "parallel/conformance/recording_communicator.h"
#include "parallel/local/local_communicator.h"

namespace megatrain::conformance {

namespace {

constexpr std::array<Axis, kAxes> kAllAxes{Axis::pipeline, Axis::data, Axis::expert, Axis::context,
                                           Axis::tensor};
/// Threads of one process are late only when they hang.
constexpr std::chrono::seconds kPatience{60};

constexpr std::size_t at(Index value) { return static_cast<std::size_t>(value); }

/// Hands each rank its end of a local group, which is made when the first one asks.
class LocalLines {
 public:
  std::unique_ptr<Communicator> connect(const std::string& line, int rank, int size) {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw ConformanceError(reason_);
    auto& group = groups_[line];
    if (group.empty()) group = make_local_communicators(line, size, kPatience);
    if (!group[at(rank)])
      throw ConformanceError(fmt::format("'{}' is the name of another communicator", line));
    return std::move(group[at(rank)]);
  }

  /// Wakes those who wait for a rank that has not come for its end, and will not.
  void end(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    for (auto& [name, group] : groups_)
      for (const auto& left : group)
        if (left) left->abort(reason);
  }

 private:
  std::mutex mutex_;
  std::string reason_;  // a rank has failed
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups_;
};

/// The first rank that threw, and what. Those that it took along come later.
class FirstFailure {
 public:
  void note(int rank, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (rank_ < 0) {
      rank_ = rank;
      what_ = what;
    }
  }
  void rethrow(int world) const {
    if (rank_ >= 0) throw ConformanceError(fmt::format("rank {} of {}: {}", rank_, world, what_));
  }

 private:
  std::mutex mutex_;
  int rank_ = -1;
  std::string what_;
};

/// What a rank did with the communicators that it made besides those of the axes, by name.
using CallsByName = std::map<std::string, std::vector<Call>>;

void check_same_calls(const std::string& name, int first, const std::vector<Call>& others, int rank,
                      const std::vector<Call>& own) {
  const auto [a, b] = std::ranges::mismatch(own, others);
  if (a == own.end() && b == others.end()) return;
  const auto text = [](auto place, auto end) {
    return place == end ? std::string("nothing more") : describe(*place);
  };
  throw ConformanceError(fmt::format("call {} along '{}' differs: rank {} made {}, rank {} made {}",
                                     a - own.begin() + 1, name, first, text(b, others.end()), rank,
                                     text(a, own.end())));
}

void check_same_calls(const ProcessAxes& axes, const std::vector<Calls>& calls,
                      const std::vector<CallsByName>& more) {
  std::map<std::string, int> first_of;  // the first rank that has the communicator
  for (int rank = 0; rank < axes.world(); ++rank) {
    for (const Axis axis : kAllAxes) {
      const int first = axes.line(rank, axis).front();
      check_same_calls(axes.line_name(rank, axis), first, calls[at(first)][axis], rank,
                       calls[at(rank)][axis]);
    }
    for (const auto& [name, own] : more[at(rank)]) {
      const int first = first_of.try_emplace(name, rank).first->second;
      check_same_calls(name, first, more[at(first)].at(name), rank, own);
    }
  }
}

/// A number in [-1, 1) without structure.
float noise(std::uint64_t seed) {
  return static_cast<float>(static_cast<double>(scatter(seed + kGoldenRatio) >> 11) * 0x1p-52 -
                            1.0);
}

std::vector<float> noise_vector(Index count, int owner, std::uint64_t salt) {
  std::vector<float> result(at(count));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = noise((salt << 60) ^ (static_cast<std::uint64_t>(owner) << 40) ^ i);
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Product {
  double value = 0;
  double magnitude = 0;
};

/// Over all ranks of all lines; what is replicated along `axis` counts once a line.
Product inner_product(const ProcessAxes& axes, Axis axis, const Space& space,
                      const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  Product result;
  for (int rank = 0; rank < axes.world(); ++rank) {
    if (space.replicated && axes.coordinates(rank)[axis] != 0) continue;
    for (std::size_t i = 0; i < at(space.count); ++i) {
      const double term = double{a[at(rank)][i]} * double{b[at(rank)][i]};
      result.value += term;
      result.magnitude += std::abs(term);
    }
  }
  return result;
}

void check_replicas(const ProcessAxes& axes, Axis axis, const std::string& what,
                    const std::vector<std::vector<float>>& values) {
  for (int rank = 0; rank < axes.world(); ++rank) {
    const int first = axes.line(rank, axis).front();
    if (!same_bits(values[at(rank)], values[at(first)]))
      throw ConformanceError(
          fmt::format("{}: ranks {} and {} should have the same bits", what, first, rank));
  }
}

}  // namespace

Setting along(Axis axis, int size) {
  PerAxis<int> sizes(1);
  sizes[axis] = size;
  return {.axes = ProcessAxes(sizes)};
}

std::vector<Calls> run_ranks(const Setting& setting, const std::function<void(Rank&)>& body) {
  const int world = setting.axes.world();
  std::vector<Calls> calls(at(world));
  std::vector<CallsByName> more(at(world));
  LocalLines local;
  FirstFailure failure;
  const auto run = [&](int number) {
    AxisCommunicators communicators;  // outlives the stream, whose work may need it
    const auto device = make_cpu_device({.threads = 1});
    const auto stream = device->make_stream(fmt::format("rank {}", number));
    try {
      const auto connect = [&](const std::string& line, int rank, int size) {
        return setting.connect ? setting.connect(line, rank, size)
                               : local.connect(line, rank, size);
      };
      communicators = connect_axes(setting.axes, number, connect);
      for (const Axis axis : kAllAxes)
        communicators[axis] = record_calls(std::move(communicators[axis]), calls[at(number)][axis]);
      Rank rank(setting.axes, number, *device, *stream, communicators,
                [&](const std::string& name, std::span<const int> ranks) {
                  const auto place = std::ranges::find(ranks, number) - ranks.begin();
                  return record_calls(
                      connect(name, static_cast<int>(place), static_cast<int>(ranks.size())),
                      more[at(number)][name]);
                });
      body(rank);
      stream->synchronize();
    } catch (const std::exception& error) {
      failure.note(number, error.what());
      local.end(error.what());
      for (const Axis axis : kAllAxes)
        if (communicators[axis]) communicators[axis]->abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  failure.rethrow(world);
  check_same_calls(setting.axes, calls, more);
  return calls;
}

void check_conjugate(const Setting& setting, const ConjugatePair& pair, double tolerance) {
  const auto world = at(setting.axes.world());
  std::vector<std::vector<float>> x(world), y(world), forward(world), backward(world);
  run_ranks(setting, [&](Rank& rank) {
    const auto own = at(rank.rank());
    const auto owner = [&](const Space& space) {
      return space.replicated ? rank.axes().line(rank.rank(), pair.axis).front() : rank.rank();
    };
    x[own] = noise_vector(pair.input.count, owner(pair.input), 1);
    y[own] = noise_vector(pair.output.count, owner(pair.output), 2);
    forward[own].resize(at(pair.output.count));
    backward[own].resize(at(pair.input.count));
    pair.forward(rank, x[own].data(), forward[own].data());
    pair.backward(rank, y[own].data(), backward[own].data());
    rank.stream().synchronize();
  });
  if (pair.output.replicated)
    check_replicas(setting.axes, pair.axis, pair.name + " forward", forward);
  if (pair.input.replicated)
    check_replicas(setting.axes, pair.axis, pair.name + " backward", backward);
  const Product one = inner_product(setting.axes, pair.axis, pair.output, forward, y);
  const Product other = inner_product(setting.axes, pair.axis, pair.input, x, backward);
  const double allowed = tolerance * std::max(one.magnitude, other.magnitude);
  if (!(std::abs(one.value - other.value) <= allowed))
    throw ConformanceError(fmt::format(
        "{} is not a conjugate pair: <forward(x), y> is {}, <x, backward(y)> is {} ({} allowed)",
        pair.name, one.value, other.value, allowed));
}

void check_equal_to_one(const Setting& setting,
                        const std::function<std::vector<float>(Rank&)>& function, double bound) {
  std::vector<float> expected;
  run_ranks({}, [&](Rank& rank) { expected = function(rank); });
  std::vector<std::vector<float>> results(at(setting.axes.world()));
  run_ranks(setting, [&](Rank& rank) { results[at(rank.rank())] = function(rank); });

  for (std::size_t rank = 1; rank < results.size(); ++rank)
    if (!same_bits(results[rank], results.front()))
      throw ConformanceError(fmt::format("ranks 0 and {} should have the same bits", rank));
  const std::vector<float>& result = results.front();
  if (result.size() != expected.size())
    throw ConformanceError(fmt::format("{} results with {} ranks, {} with one", result.size(),
                                       setting.axes.world(), expected.size()));
  if (bound == 0 && same_bits(result, expected)) return;
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool same =
        std::bit_cast<std::uint32_t>(result[i]) == std::bit_cast<std::uint32_t>(expected[i]);
    if (same || (bound > 0 && std::abs(double{result[i]} - double{expected[i]}) <= bound * largest))
      continue;
    throw ConformanceError(
        fmt::format("element {} is {} with {} ranks and {} with one ({} allowed)", i, result[i],
                    setting.axes.world(), expected[i], bound * largest));
  }
}

}  // namespace megatrain::conformance
