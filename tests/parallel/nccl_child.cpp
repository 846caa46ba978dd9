// One process of a group over NCCL, for nccl_test, with the GPU of its rank's number.
//   nccl_child FOLDER RANK SIZE TIMEOUT-MS SCENARIO VICTIM
// Prints what it found; exit code 0, or 3 with the message of a PeerError.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bfloat16.h"
#include "core/device/device.h"
#include "parallel/nccl/nccl_transport.h"
#include "tests/parallel/rank_main.h"
#include "tests/parallel/stores.h"

namespace {

using namespace megatrain;

constexpr Index kCounts[] = {1, 3, 2048, 65536, 262145};

/// Values whose sum depends on the order in which they are added.
float value(int rank, Index i) {
  const float sign = (rank + i) % 2 == 0 ? 1.0F : -1.0F;
  return sign * std::ldexp(1.0F + static_cast<float>(i % 97) / 97.0F,
                           static_cast<int>((rank * 7 + i % 5) % 24));
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw Error("wrong: " + what);
}

class Rank {
 public:
  Rank(int rank, int size, std::chrono::milliseconds timeout, const std::string& folder)
      : rank_(rank),
        size_(size),
        device_(make_cuda_device({.ordinal = rank})),
        transport_(make_nccl_transport(*device_, timeout)),
        communicator_(
            transport_->connect(std::make_shared<FolderStore>(folder), "data", rank, size)),
        stream_(device_->make_stream("collectives")),
        reached_(device_->make_event()) {}

  [[nodiscard]] Communicator& communicator() const { return *communicator_; }

  /// Lets `act` work on a copy of `data` in the GPU's memory, and brings it back.
  template <class T>
  void on_gpu(std::vector<T>& data, const std::function<void(T*)>& act) {
    const auto bytes = static_cast<Index>(data.size() * sizeof(T));
    const auto registered = device_->register_host(data.data(), bytes);
    const auto memory = device_->allocate(bytes);
    stream_->copy(memory->data(), data.data(), bytes);
    act(reinterpret_cast<T*>(memory->data()));
    stream_->copy(data.data(), memory->data(), bytes);
    stream_->record(*reached_);
    reached_->synchronize();
    communicator_->check();
  }

  void gathers() {
    for (const Index count : kCounts) {
      for (const bool in_place : {false, true}) {
        // Behind the whole there is room for a slice apart from it.
        std::vector<float> data(static_cast<std::size_t>(count * (size_ + 1)), -1.0F);
        const Index place = (in_place ? rank_ : size_) * count;
        for (Index i = 0; i < count; ++i) data[at(place + i)] = value(rank_, i);
        on_gpu<float>(data, [&](float* all) {
          communicator_->all_gather(*stream_, all + place, all, count, DType::f32);
        });
        for (int other = 0; other < size_; ++other)
          for (Index i = 0; i < count; ++i)
            expect(data[at(other * count + i)] == value(other, i), "a gather of fp32");
      }
      std::vector<bfloat16> halves(at(count * size_));
      for (Index i = 0; i < count; ++i)
        halves[at(rank_ * count + i)] = to_bfloat16(value(rank_, i));
      on_gpu<bfloat16>(halves, [&](bfloat16* all) {
        communicator_->all_gather(*stream_, all + rank_ * count, all, count, DType::bf16);
      });
      for (int other = 0; other < size_; ++other)
        for (Index i = 0; i < count; ++i)
          expect(halves[at(other * count + i)].bits == to_bfloat16(value(other, i)).bits,
                 "a gather of bf16");
    }
  }

  void broadcasts() {
    for (int root = 0; root < size_; ++root)
      for (const Index count : kCounts) {
        std::vector<float> data(at(count));
        for (Index i = 0; i < count; ++i) data[at(i)] = value(rank_, i);
        on_gpu<float>(data, [&](float* all) {
          communicator_->broadcast(*stream_, all, count, DType::f32, root);
        });
        for (Index i = 0; i < count; ++i) expect(data[at(i)] == value(root, i), "a broadcast");
      }
  }

  void scatters() {
    for (const bool in_place : {false, true})
      for (const Index count : kCounts) {
        std::vector<float> data(at(count * (size_ + 1)), -1.0F);
        for (Index i = 0; i < count * size_; ++i) data[at(i)] = value(rank_, i);
        const Index place = (in_place ? rank_ : size_) * count;
        on_gpu<float>(data, [&](float* all) {
          communicator_->reduce_scatter(*stream_, all, all + place, count);
        });
        for (Index i = 0; i < count; ++i) expect_sum(data[at(place + i)], rank_ * count + i);
        for (Index i = 0; i < count * size_; ++i)
          if (!in_place || i < place || i >= place + count)
            expect(data[at(i)] == value(rank_, i), "what a scatter shall leave as it is");
      }
  }

  /// @returns a hash of the bits
  std::uint64_t sums() {
    std::uint64_t hash = 14695981039346656037U;
    for (int round = 0; round < 3; ++round)
      for (const Index count : kCounts) {
        std::vector<float> data(at(count));
        for (Index i = 0; i < count; ++i) data[at(i)] = value(rank_, i);
        on_gpu<float>(data, [&](float* all) { communicator_->all_reduce(*stream_, all, count); });
        for (Index i = 0; i < count; ++i) {
          expect_sum(data[at(i)], i);
          hash = (hash ^ std::bit_cast<std::uint32_t>(data[at(i)])) * 1099511628211U;
        }
      }
    return hash;
  }

  void agreements() {
    // More than one piece, and sums that depend on the order.
    const auto number = [](int rank, int i) {
      return (rank % 2 == 0 ? 1e16 : -1e16) + rank * 0.75 + i;
    };
    std::vector<double> values(150);
    for (int i = 0; i < 150; ++i) values[at(i)] = number(rank_, i);
    communicator_->sum(values);
    for (int i = 0; i < 150; ++i) {
      double sum = number(0, i);
      for (int other = 1; other < size_; ++other) sum += number(other, i);
      expect(values[at(i)] == sum, "a sum of the hosts");
    }
    communicator_->sum({});
    expect(communicator_->max(-rank_) == 0, "the largest value");
    expect(
        std::isnan(communicator_->max(rank_ == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0)),
        "a largest value that is none");
    communicator_->barrier(std::chrono::seconds(60));
  }

  void nothing() {
    communicator_->all_gather(*stream_, nullptr, nullptr, 0, DType::f32);
    communicator_->reduce_scatter(*stream_, nullptr, nullptr, 0);
    communicator_->all_reduce(*stream_, nullptr, 0);
  }

  /// Rounds in which somebody may get into trouble.
  void rounds(bool agree, const std::function<void(int)>& before) {
    for (int round = 0; round < 10; ++round) {
      before(round);
      std::vector<float> data(100'000, 1.0F);
      if (agree)
        expect(communicator_->max(rank_) == size_ - 1, "the largest rank");
      else
        on_gpu<float>(data, [&](float* all) {
          communicator_->all_reduce(*stream_, all, static_cast<Index>(data.size()));
        });
    }
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  void expect_sum(float actual, Index i) const {
    double sum = 0;
    double magnitude = 0;
    for (int rank = 0; rank < size_; ++rank) {
      sum += static_cast<double>(value(rank, i));
      magnitude += std::abs(static_cast<double>(value(rank, i)));
    }
    const double bound = magnitude * size_ * std::numeric_limits<float>::epsilon();
    expect(std::abs(static_cast<double>(actual) - sum) <= bound, "a sum of the GPUs");
  }

  const int rank_;
  const int size_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<NcclTransport> transport_;
  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> reached_;
};

int run(const megatrain::testing::RankArguments& arguments) {
  const auto& [folder, rank, size, timeout, scenario, victim] = arguments;
  if (victim && scenario == "absent") return 0;

  Rank own(rank, size, timeout, folder);
  if (scenario == "right") {
    own.gathers();
    own.broadcasts();
    own.scatters();
    fmt::print("bits {:016x}\n", own.sums());
    own.agreements();
    own.nothing();
    return 0;
  }
  own.rounds(scenario.ends_with("in an agreement"), [&](int round) {
    if (!victim || round != 3) return;
    if (scenario.starts_with("kill")) std::raise(SIGKILL);
    if (scenario.starts_with("stop")) std::raise(SIGSTOP);
    if (scenario.starts_with("abort")) own.communicator().abort("the data ended");
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return megatrain::testing::rank_main(argc, argv, run); }
