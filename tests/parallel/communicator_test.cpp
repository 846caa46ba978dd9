// Every promise of Communicator, over threads and over Gloo, for one to four ranks.

#include "core/engine/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/base/bfloat16.h"
#include "core/device/cpu/cpu_device.h"
#include "parallel/conformance/conformance.h"
#include "parallel/gloo/gloo_transport.h"
#include "parallel/local/local_communicator.h"
#include "tests/parallel/stores.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;
using conformance::Rank;

enum class Kind : std::uint8_t { local, gloo };

struct Case {
  Kind kind;
  int size;
};

std::ostream& operator<<(std::ostream& stream, const Case& value) {
  return stream << (value.kind == Kind::local ? "local " : "gloo ") << value.size;
}

std::vector<Case> cases(int smallest) {
  std::vector<Case> result;
  for (const Kind kind : {Kind::local, Kind::gloo})
    for (int size = smallest; size <= 4; ++size)
      if (kind == Kind::local || has_gloo()) result.push_back({kind, size});
  return result;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return (info.param.kind == Kind::local ? "Local" : "Gloo") + std::to_string(info.param.size);
}

/// Ranks of a run are connected by what the case names.
conformance::Setting setting(const Case& value, std::chrono::milliseconds timeout = 60s) {
  conformance::Setting result = conformance::along(Axis::data, value.size);
  if (value.kind == Kind::gloo) {
    const auto store = std::make_shared<MapStore>();
    result.connect = [=](const std::string& line, int rank, int size) {
      return make_gloo_transport({.address = "127.0.0.1", .timeout = timeout})
          ->connect(store, line, rank, size);
    };
  } else {
    struct Group {
      std::mutex mutex;
      std::map<std::string, std::vector<std::unique_ptr<Communicator>>> ends;
    };
    const auto group = std::make_shared<Group>();
    result.connect = [=](const std::string& line, int rank, int size) {
      const std::lock_guard lock(group->mutex);
      auto& ends = group->ends[line];
      if (ends.empty()) ends = make_local_communicators(line, size, timeout);
      return std::move(ends[static_cast<std::size_t>(rank)]);
    };
  }
  return result;
}

/// Values whose sum depends on the order in which they are added.
float value(int rank, Index i) {
  const float sign = (rank + i) % 2 == 0 ? 1.0F : -1.0F;
  return sign * std::ldexp(1.0F + static_cast<float>(i % 97) / 97.0F, (rank * 7 + int(i % 5)) % 24);
}

std::vector<float> values(int rank, Index count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) result[static_cast<std::size_t>(i)] = value(rank, i);
  return result;
}

float expected_sum(int size, Index i) {
  volatile float sum = value(0, i);
  for (int rank = 1; rank < size; ++rank) sum = sum + value(rank, i);
  return sum;
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Odd ones, one that fills a piece of the sum, and one beyond.
constexpr std::array<Index, 5> kCounts{1, 3, 2048, 65536, 262145};

/// Delays this rank's stream by a time that differs from rank to rank and from round to round.
void dawdle(Rank& rank, int round) {
  cpu_stream(rank.stream()).enqueue([late = (rank.rank() * 7 + round * 3) % 5] {
    std::this_thread::sleep_for(std::chrono::milliseconds(late));
  });
}

class Collectives : public testing::TestWithParam<Case> {
 protected:
  void run(const std::function<void(Rank&, Communicator&)>& body) {
    conformance::run_ranks(setting(GetParam()),
                           [&](Rank& rank) { body(rank, rank.along(Axis::data)); });
  }
  [[nodiscard]] int size() const { return GetParam().size; }
};

INSTANTIATE_TEST_SUITE_P(Every, Collectives, testing::ValuesIn(cases(1)), case_name);

TEST_P(Collectives, KnowRankAndSize) {
  std::atomic<int> ranks{0};
  run([&](Rank& rank, Communicator& communicator) {
    EXPECT_EQ(communicator.size(), size());
    EXPECT_EQ(communicator.rank(), rank.rank());
    EXPECT_EQ(communicator.name(), rank.axes().line_name(rank.rank(), Axis::data));
    ranks += 1 << (4 * communicator.rank());
  });
  EXPECT_EQ(ranks, 0x1111 & ((1 << (4 * size())) - 1));
}

TEST_P(Collectives, AllGatherPutsSlicesInRankOrder) {
  run([&](Rank& rank, Communicator& communicator) {
    for (const Index count : kCounts) {
      const std::vector<float> slice = values(rank.rank(), count);
      std::vector<float> whole(static_cast<std::size_t>(count * size()), -1.0F);
      dawdle(rank, static_cast<int>(count));
      communicator.all_gather(rank.stream(), slice.data(), whole.data(), count, DType::f32);
      rank.stream().synchronize();
      for (int other = 0; other < size(); ++other)
        for (Index i = 0; i < count; ++i)
          ASSERT_EQ(whole[static_cast<std::size_t>(other * count + i)], value(other, i));
    }
  });
}

TEST_P(Collectives, AllGatherMovesBf16AndWorksInPlace) {
  run([&](Rank& rank, Communicator& communicator) {
    for (const Index count : kCounts) {
      std::vector<bfloat16> whole(static_cast<std::size_t>(count * size()));
      bfloat16* slice = whole.data() + rank.rank() * count;
      for (Index i = 0; i < count; ++i) slice[i] = to_bfloat16(value(rank.rank(), i));
      communicator.all_gather(rank.stream(), slice, whole.data(), count, DType::bf16);
      rank.stream().synchronize();
      for (int other = 0; other < size(); ++other)
        for (Index i = 0; i < count; ++i)
          ASSERT_EQ(whole[static_cast<std::size_t>(other * count + i)].bits,
                    to_bfloat16(value(other, i)).bits);
    }
  });
}

TEST_P(Collectives, ReduceScatterAddsInRankOrder) {
  run([&](Rank& rank, Communicator& communicator) {
    for (const bool in_place : {false, true})
      for (const Index count : kCounts) {
        std::vector<float> whole = values(rank.rank(), count * size());
        const std::vector<float> before = whole;
        std::vector<float> aside(static_cast<std::size_t>(count));
        const Index first = rank.rank() * count;
        float* slice = in_place ? whole.data() + first : aside.data();
        dawdle(rank, static_cast<int>(count));
        communicator.reduce_scatter(rank.stream(), whole.data(), slice, count);
        rank.stream().synchronize();
        for (Index i = 0; i < count; ++i)
          ASSERT_EQ(bits(slice[i]), bits(expected_sum(size(), first + i)));
        for (Index i = 0; i < count * size(); ++i)
          if (!in_place || i < first || i >= first + count) {
            ASSERT_EQ(whole[static_cast<std::size_t>(i)], before[static_cast<std::size_t>(i)]);
          }
      }
  });
}

TEST_P(Collectives, AllReduceAddsInRankOrder) {
  run([&](Rank& rank, Communicator& communicator) {
    for (int round = 0; round < 3; ++round)
      for (const Index count : kCounts) {
        std::vector<float> data = values(rank.rank(), count);
        dawdle(rank, round);
        communicator.all_reduce(rank.stream(), data.data(), count);
        rank.stream().synchronize();
        for (Index i = 0; i < count; ++i)
          ASSERT_EQ(bits(data[static_cast<std::size_t>(i)]), bits(expected_sum(size(), i)));
      }
  });
}

TEST_P(Collectives, AllReduceOfBf16AddsInFp32AndRoundsOnce) {
  run([&](Rank& rank, Communicator& communicator) {
    for (const Index count : kCounts) {
      std::vector<bfloat16> data(static_cast<std::size_t>(count));
      for (Index i = 0; i < count; ++i)
        data[static_cast<std::size_t>(i)] = to_bfloat16(value(rank.rank(), i));
      dawdle(rank, static_cast<int>(count));
      communicator.all_reduce(rank.stream(), data.data(), count, DType::bf16);
      rank.stream().synchronize();
      for (Index i = 0; i < count; ++i) {
        volatile float sum = to_float(to_bfloat16(value(0, i)));
        for (int other = 1; other < size(); ++other)
          sum = sum + to_float(to_bfloat16(value(other, i)));
        ASSERT_EQ(data[static_cast<std::size_t>(i)].bits, to_bfloat16(sum).bits) << i;
      }
    }
  });
}

TEST_P(Collectives, SumsKeepInfinityAndNan) {
  run([&](Rank& rank, Communicator& communicator) {
    std::vector<float> data{1, 2, 3};
    if (rank.rank() == size() - 1) {
      data[0] = std::numeric_limits<float>::infinity();
      data[1] = std::numeric_limits<float>::quiet_NaN();
    }
    communicator.all_reduce(rank.stream(), data.data(), 3);
    rank.stream().synchronize();
    EXPECT_TRUE(std::isinf(data[0]));
    EXPECT_TRUE(std::isnan(data[1]));
    EXPECT_EQ(data[2], 3.0F * static_cast<float>(size()));
  });
}

TEST_P(Collectives, BroadcastGivesTheRootsDataToAll) {
  run([&](Rank& rank, Communicator& communicator) {
    for (int root = 0; root < size(); ++root)
      for (const Index count : kCounts) {
        std::vector<float> data = values(rank.rank(), count);
        communicator.broadcast(rank.stream(), data.data(), count, DType::f32, root);
        rank.stream().synchronize();
        ASSERT_EQ(data, values(root, count));
      }
  });
}

TEST_P(Collectives, HostAgreementsAddInRankOrderAndFindTheLargest) {
  const auto number = [](int rank) { return (rank % 2 == 0 ? 1e16 : -1e16) + rank * 0.75; };
  double expected = number(0);
  for (int rank = 1; rank < size(); ++rank) expected += number(rank);
  run([&](Rank& rank, Communicator& communicator) {
    std::vector<double> sums{1.0, number(rank.rank())};
    communicator.sum(sums);
    EXPECT_EQ(sums[0], size());
    EXPECT_EQ(sums[1], expected);
    EXPECT_EQ(communicator.max(-rank.rank()), 0.0);
    EXPECT_EQ(communicator.max(rank.rank()), size() - 1);
    EXPECT_TRUE(std::isnan(
        communicator.max(rank.rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0)));
    communicator.sum({});
  });
}

TEST_P(Collectives, NothingIsNothing) {
  run([&](Rank& rank, Communicator& communicator) {
    communicator.all_gather(rank.stream(), nullptr, nullptr, 0, DType::f32);
    communicator.reduce_scatter(rank.stream(), nullptr, nullptr, 0);
    communicator.all_reduce(rank.stream(), nullptr, 0);
    rank.stream().synchronize();
  });
}

TEST_P(Collectives, AreEnqueuedAndMeetOtherStreamsThroughEvents) {
  run([&](Rank& rank, Communicator& communicator) {
    const auto other = rank.device().make_stream("other");
    const auto filled = rank.device().make_event();
    const auto gathered = rank.device().make_event();
    constexpr Index kCount = 5000;
    std::vector<float> slice(kCount);
    std::vector<float> whole(static_cast<std::size_t>(kCount * size()));
    std::vector<float> copy(whole.size());
    for (int round = 0; round < 20; ++round) {
      if (round > 0) other->wait(*gathered);
      cpu_stream(*other).enqueue([&slice, round, own = rank.rank()] {
        if (own == round % 3) std::this_thread::sleep_for(1ms);
        announce_write(slice.data(), kCount * 4);
        for (float& x : slice) x = static_cast<float>(100 * round + own);
      });
      other->record(*filled);
      rank.stream().wait(*filled);
      communicator.all_gather(rank.stream(), slice.data(), whole.data(), kCount, DType::f32);
      communicator.all_reduce(rank.stream(), whole.data(), kCount * size());
      rank.stream().copy(copy.data(), whole.data(), kCount * size() * 4);
      rank.stream().record(*gathered);
      // Host agreements pass by what is enqueued.
      if (round % 5 == 0) {
        EXPECT_EQ(communicator.max(rank.rank()), size() - 1);
      }
    }
    gathered->synchronize();
    for (int from = 0; from < size(); ++from)
      ASSERT_EQ(copy[static_cast<std::size_t>(from * kCount + kCount - 1)],
                static_cast<float>((1900 + from) * size()));
    other->synchronize();
  });
}

TEST_P(Collectives, BarrierHoldsUntilTheLastIsThere) {
  std::atomic<int> there{0};
  run([&](Rank& rank, Communicator& communicator) {
    for (int round = 1; round <= 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds((rank.rank() + round) % 4));
      ++there;
      communicator.barrier(60s);
      EXPECT_GE(there, round * size());
    }
  });
}

/// Each rank's collective, and the wait for it, on a stream that may fail.
void all_reduce_now(Communicator& communicator, Index count = 100000) {
  const auto device = make_cpu_device({.threads = 1});
  const auto stream = device->make_stream("collectives");
  std::vector<float> data(static_cast<std::size_t>(count));
  communicator.all_reduce(*stream, data.data(), count);
  stream->synchronize();
}

class Trouble : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] int size() const { return GetParam().size; }

  /// Runs `body` on a thread for each rank and collects what each throws; "" for none. The blame is
  /// checked to be on `to_blame`.
  std::vector<std::string> errors(const std::function<void(Communicator&)>& body,
                                  const std::vector<int>& to_blame,
                                  std::chrono::milliseconds timeout = 60s) {
    std::vector<std::string> texts(static_cast<std::size_t>(size()));
    std::vector<std::thread> threads;
    const conformance::Setting all = setting(GetParam(), timeout);
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          const auto communicator = all.connect("line", rank, size());
          body(*communicator);
        } catch (const PeerError& error) {
          texts[static_cast<std::size_t>(rank)] = error.what();
          EXPECT_EQ(error.ranks(), to_blame) << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return texts;
  }

  /// The same where `absent` does nothing until all others have failed.
  std::vector<std::string> errors_without(int absent,
                                          const std::function<void(Communicator&)>& body,
                                          std::chrono::milliseconds timeout = 60s) {
    std::atomic<int> failed{0};
    return errors(
        [&](Communicator& communicator) {
          if (communicator.rank() == absent) {
            while (failed < size() - 1) std::this_thread::sleep_for(1ms);
            return;
          }
          try {
            body(communicator);
          } catch (const PeerError&) {
            ++failed;
            throw;
          }
        },
        {absent}, timeout);
  }
};

INSTANTIATE_TEST_SUITE_P(Every, Trouble, testing::ValuesIn(cases(2)), case_name);

void expect_in_each(const std::vector<std::string>& texts, const std::string& words, int but = -1) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (static_cast<int>(rank) == but) continue;
    EXPECT_NE(texts[rank].find(words), std::string::npos)
        << "'" << words << "' is missing on rank " << rank << ": " << texts[rank];
  }
}

TEST_P(Trouble, AbortWakesAllWhoWaitAndNamesTheReason) {
  std::atomic<int> others{0};
  const auto texts = errors(
      [&](Communicator& communicator) {
        if (communicator.rank() != 1) ++others;
        if (communicator.rank() == 1) {
          while (others < size() - 1) std::this_thread::sleep_for(20ms);
          communicator.abort("the disk is full");
          communicator.abort("this comes second");
        }
        all_reduce_now(communicator);
      },
      {1});
  expect_in_each(texts, "the disk is full");
  expect_in_each(texts, "all_reduce 1");
  expect_in_each(texts, "rank 1");
}

TEST_P(Trouble, AbortWakesTheRanksOwnThread) {
  // Only rank 0 waits; another of its threads gives up.
  std::atomic<bool> over{false};
  const auto texts = errors(
      [&](Communicator& communicator) {
        if (communicator.rank() != 0) {
          while (!over) std::this_thread::sleep_for(1ms);
          return;
        }
        std::thread other([&] {
          std::this_thread::sleep_for(20ms);
          communicator.abort("a signal came");
        });
        std::vector<double> number{1};
        EXPECT_THROW(communicator.sum(number), PeerError);
        other.join();
        over = true;
        communicator.sum(number);
      },
      {0});
  EXPECT_NE(texts[0].find("a signal came"), std::string::npos) << texts[0];
}

TEST_P(Trouble, NobodyWaitsForARankThatLeft) {
  const int last = size() - 1;
  const auto texts = errors(
      [&](Communicator& communicator) {
        communicator.barrier(60s);
        if (communicator.rank() != last) all_reduce_now(communicator, 10);
      },
      {last});
  expect_in_each(texts, "all_reduce 2", last);
}

TEST_P(Trouble, ALateRankIsNamedWhenTheTimeIsOver) {
  const auto texts =
      errors_without(1, [](Communicator& communicator) { all_reduce_now(communicator); }, 300ms);
  expect_in_each(texts, "rank 1", 1);
  expect_in_each(texts, "all_reduce 1", 1);
}

TEST_P(Trouble, ABarrierHasItsOwnDeadline) {
  const auto texts =
      errors_without(0, [](Communicator& communicator) { communicator.barrier(200ms); });
  expect_in_each(texts, "barrier 1", 0);
}

TEST_P(Trouble, NothingWorksAfterwards) {
  const auto texts = errors(
      [&](Communicator& communicator) {
        if (communicator.rank() == 0) communicator.abort("enough");
        EXPECT_THROW(all_reduce_now(communicator), PeerError);
        EXPECT_THROW((void)communicator.max(1), PeerError);
        communicator.barrier(60s);
      },
      {0});
  expect_in_each(texts, "enough");
}

TEST_P(Trouble, OneCommunicatorKeepsToOneStream) {
  conformance::run_ranks(setting(GetParam()), [&](Rank& rank) {
    Communicator& communicator = rank.along(Axis::data);
    const auto other = rank.device().make_stream("other");
    float x = 0;
    communicator.all_reduce(rank.stream(), &x, 1);
    EXPECT_THROW(communicator.all_reduce(*other, &x, 1), LogicError);
    std::vector<float> whole(static_cast<std::size_t>(4 * size()));
    EXPECT_THROW(
        communicator.all_gather(rank.stream(), whole.data() + 1, whole.data(), 4, DType::f32),
        LogicError);
    EXPECT_THROW(communicator.broadcast(rank.stream(), &x, 1, DType::f32, size()), LogicError);
    rank.stream().synchronize();  // x goes with this scope
  });
}

TEST(LocalCommunicator, ADifferentCallIsAnErrorOnEveryRank) {
  constexpr int kSize = 3;
  auto ends = make_local_communicators("line", kSize, 60s);
  std::vector<std::thread> threads;
  std::atomic<int> named{0};
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      const auto device = make_cpu_device({.threads = 1});
      const auto stream = device->make_stream("collectives");
      std::vector<float> data(300);
      if (rank == 1)
        ends[1]->all_reduce(*stream, data.data(), 200);
      else
        ends[static_cast<std::size_t>(rank)]->all_reduce(*stream, data.data(), 100);
      try {
        stream->synchronize();
      } catch (const LogicError& error) {
        const std::string text = error.what();
        if (text.find("(100 fp32 elements)") != std::string::npos &&
            text.find("(200 fp32 elements)") != std::string::npos)
          ++named;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(named, kSize);
}

/// A store that serves all ranks is asked a few times by each, not once for each pair.
TEST(GlooTransport, MeetsInAFewRequests) {
  if (!has_gloo()) GTEST_SKIP() << "no Gloo";
  constexpr int kSize = 9;
  const auto store = std::make_shared<CountingStore>(std::make_shared<MapStore>());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = make_gloo_transport({.address = "127.0.0.1", .timeout = 60s});
      const auto all = transport->connect(store, "data", rank, kSize);
      std::array<double, 2> sums{1, static_cast<double>(rank)};
      all->sum(sums);
      EXPECT_EQ(sums, (std::array<double, 2>{kSize, kSize * (kSize - 1) / 2}));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->requests() % (4 * kSize), 0);  // addresses, how it went; again after a failure
  EXPECT_LE(store->requests(), 3 * 4 * kSize);
}

TEST(GlooTransport, SaysWhoDidNotComeAndWhatIsWrong) {
  if (!has_gloo()) {
    EXPECT_THROW((void)make_gloo_transport({.address = "127.0.0.1"}), UserError);
    return;
  }
  EXPECT_THROW((void)make_gloo_transport({.address = ""}), UserError);
  EXPECT_THROW((void)make_gloo_transport({.address = "192.0.2.1"}), UserError);
  const auto transport = make_gloo_transport({.address = "127.0.0.1", .timeout = 100ms});
  const auto store = std::make_shared<MapStore>();
  try {
    (void)transport->connect(store, "data", 1, 3);
    FAIL() << "connected to nobody";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.ranks(), (std::vector<int>{0, 2}));
    EXPECT_NE(std::string(error.what()).find("ranks 0, 2"), std::string::npos) << error.what();
  }
  EXPECT_EQ(transport->connect(store, "alone", 0, 1)->size(), 1);
}

}  // namespace
}  // namespace megatrain
