// A rank of a world, for world_processes_test. Takes its place from the environment.
//   world_program ACT [WORD=NUMBER...]
//   collectives  connects the world twice, backwards, and in lines; compares all bits
//   endless      all-reduces until something ends it
//   lines        the same in pairs of neighbours
// Words: victim=RANK, with what that rank does after a while: throws=1, unwinds=1, hangs=1; or
// late=1, it never connects. join, silence, timeout: milliseconds. configuration: a number.
// Exit codes: 0; 3 and the message for a PeerError or RankLost; 2 for a UserError; else 1.

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "parallel/world/world.h"
#include "tests/parallel/program_environment.h"

namespace megatrain::parallel {
namespace {

/// Odd, and more than one piece of a sum.
constexpr Index kCount = 70001;

/// What a rank of the world puts in: sums of it depend on the order.
std::vector<float> values_of(int rank, Index count, int salt) {
  std::vector<float> values;
  std::uint32_t random = 17U + static_cast<std::uint32_t>(rank * 1000 + salt);
  for (Index i = 0; i < count; ++i) {
    random = random * 1664525U + 1013904223U;
    values.push_back(static_cast<float>(static_cast<std::int32_t>(random)) *
                     ((random >> 8) % 3 == 0 ? 1e-3F : 1.0F));
  }
  return values;
}

std::vector<float> sum_of(const std::vector<int>& ranks, Index count, int salt) {
  std::vector<float> sum = values_of(ranks.front(), count, salt);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const std::vector<float> part = values_of(ranks[i], count, salt);
    std::ranges::transform(sum, part, sum.begin(), std::plus());
  }
  return sum;
}

void expect_bits(const Communicator& of, const char* what, std::span<const float> got,
                 std::span<const float> expected) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  if (!std::ranges::equal(got, expected, {}, bits, bits))
    throw Error(fmt::format("{} of '{}' differs", what, of.name()));
}

/// Some ranks, with the buffers and the stream of their collectives.
class Line {
 public:
  Line(World& world, Device& device, const std::string& name, std::vector<int> ranks)
      : ranks_(std::move(ranks)),
        communicator_(world.connect(name, ranks_)),
        stream_(device.make_stream(name)),
        whole_(kCount * communicator_->size()),
        own_(world.rank()) {}

  void begin() {
    slice_ = values_of(own_, kCount, 1);
    gathered_.resize(static_cast<std::size_t>(whole_));
    communicator_->all_gather(*stream_, slice_.data(), gathered_.data(), kCount, DType::f32);
    scattered_.resize(static_cast<std::size_t>(kCount));
    to_scatter_ = values_of(own_, whole_, 2);
    communicator_->reduce_scatter(*stream_, to_scatter_.data(), scattered_.data(), kCount);
    reduced_ = values_of(own_, whole_, 3);
    communicator_->all_reduce(*stream_, reduced_.data(), whole_);
  }

  void finish() {
    stream_->synchronize();
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      expect_bits(*communicator_, "all_gather", std::span(gathered_).subspan(i * kCount, kCount),
                  values_of(ranks_[i], kCount, 1));
    const std::vector<float> sums = sum_of(ranks_, whole_, 2);
    expect_bits(
        *communicator_, "reduce_scatter", scattered_,
        std::span(sums).subspan(static_cast<std::size_t>(communicator_->rank() * kCount), kCount));
    expect_bits(*communicator_, "all_reduce", reduced_, sum_of(ranks_, whole_, 3));
    if (ranks_[static_cast<std::size_t>(communicator_->rank())] != own_)
      throw Error("another order of ranks");
  }

 private:
  std::vector<int> ranks_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Stream> stream_;
  Index whole_;
  int own_;
  std::vector<float> slice_, gathered_, to_scatter_, scattered_, reduced_;
};

void collectives(World& world, Device& device, const std::vector<int>& everyone) {
  std::vector<Line> lines;
  lines.emplace_back(world, device, "data", everyone);
  lines.emplace_back(world, device, "data", everyone);
  lines.emplace_back(world, device, "backwards",
                     std::vector<int>(everyone.rbegin(), everyone.rend()));
  lines.emplace_back(world, device, "alone", std::vector<int>{world.rank()});
  if (world.size() == 4) {
    const int pair = world.rank() / 2 * 2;
    const int place = world.rank() % 2;
    lines.emplace_back(world, device, "shard", std::vector<int>{pair, pair + 1});
    lines.emplace_back(world, device, "replica", std::vector<int>{place, place + 2});
  }
  // All at a time.
  for (Line& line : lines) line.begin();
  for (Line& line : lines) line.finish();
  world.barrier("done", Milliseconds(60'000));
  fmt::print("{} lines, all bits as expected\n", lines.size());
}

void endless(World& world, Device& device, const std::vector<int>& ranks, bool is_victim,
             const std::map<std::string, int>& words) {
  if (is_victim && words.contains("late")) {
    fmt::print("late\n");
    std::fflush(stdout);
    for (;;) ::pause();
  }
  // The second communicator waits for nothing, and is ended all the same.
  const auto busy = world.connect("busy", ranks);
  const auto idle = world.connect("idle", ranks);
  const auto stream = device.make_stream("collectives");
  constexpr Index kMuch = Index{1} << 20;
  std::vector<float> data(kMuch, 0.0F);
  for (int round = 0;; ++round) {
    if (!is_victim && words.contains("watch"))
      world.working_on("a round", Milliseconds(words.at("watch")));
    busy->all_reduce(*stream, data.data(), kMuch);
    try {
      stream->synchronize();
    } catch (const PeerError&) {
      // It is over everywhere at once: the other one does not wait for its time.
      if (!is_victim && world.trouble()) try {
          idle->barrier(std::chrono::seconds(100));
        } catch (const PeerError& error) {
          fmt::print("idle: {}\n", error.what());
        }
      throw;
    }
    if (round == 0) fmt::print("ready\n");
    std::fflush(stdout);
    if (!is_victim || round < 3) continue;
    if (words.contains("throws") || words.contains("unwinds")) throw Error("the data ended");
    if (words.contains("hangs")) {
      world.working_on("step 7, unit 2", Milliseconds(words.at("hangs")));
      for (;;) ::pause();
    }
  }
}

int run(const std::string& act, std::map<std::string, int> words) {
  WorldOptions options;
  options.join_limit = Milliseconds(words.try_emplace("join", 60'000).first->second);
  options.silence = Milliseconds(words.try_emplace("silence", 10'000).first->second);
  // No test waits for it: what ends earlier was ended by the rendezvous.
  options.collective_timeout = Milliseconds(words.try_emplace("timeout", 300'000).first->second);
  options.configuration = static_cast<std::uint64_t>(words["configuration"]);
  World world(detect_place(program_environment()), options);
  const auto device = make_cpu_device({.threads = 1});
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const bool is_victim = words.contains("victim") && words["victim"] == world.rank();
  try {
    if (act == "collectives") collectives(world, *device, everyone);
    if (act == "endless") endless(world, *device, everyone, is_victim, words);
    if (act == "lines") {
      const int pair = world.rank() / 2 * 2;
      endless(world, *device, {pair, pair + 1}, is_victim, words);
    }
  } catch (const std::exception& error) {
    if (!words.contains("unwinds")) world.fail(error.what());
    throw;
  }
  return 0;
}

}  // namespace
}  // namespace megatrain::parallel

int main(int argc, char** argv) {
  std::map<std::string, int> words;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    words[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
  }
  try {
    return megatrain::parallel::run(argv[1], words);
  } catch (const megatrain::PeerError& error) {
    fmt::print("ended: {}\nblames {}\n", error.what(), fmt::join(error.ranks(), " "));
    return 3;
  } catch (const megatrain::parallel::RankLost& error) {
    fmt::print("ended: {}\nblames {}\n", error.what(), error.rank());
    return 3;
  } catch (const megatrain::UserError& error) {
    fmt::print("{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
