// Whom ranks blame when NCCL tells them nothing.

#include "parallel/nccl/trouble_board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/parallel/stores.h"

namespace megatrain {
namespace {

using namespace std::chrono_literals;

/// Longer than any answer here takes.
constexpr std::chrono::milliseconds kPatience{60'000};
/// Of tests in which somebody never answers.
constexpr std::chrono::milliseconds kShort{200};

class Boards : public testing::Test {
 protected:
  TroubleBoard board(int rank, int size, std::chrono::milliseconds patience = kPatience) {
    return {store_, "data", rank, size, patience};
  }
  /// What each rank finds out when it has come so far; those that are silent find nothing.
  std::vector<std::optional<PeerError>> explain(
      const std::vector<std::optional<Progress>>& progress, std::chrono::milliseconds patience) {
    const int size = static_cast<int>(progress.size());
    std::vector<std::optional<PeerError>> errors(progress.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (!progress[at]) continue;
      threads.emplace_back([&, rank, at] {
        errors[at] = board(rank, size, patience).explain("no answer", *progress[at]);
      });
    }
    threads.clear();
    return errors;
  }
  std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();
};

bool says(const std::exception& error, const std::string& words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

TEST_F(Boards, MeetWhenAllAreThere) {
  std::atomic<int> met = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      TroubleBoard own = board(rank, 3);
      own.meet(kPatience);
      ++met;
      if (rank == 0) own.publish(std::string("a\0b", 3));
      EXPECT_EQ(own.read_published(kPatience), std::string("a\0b", 3));
    });
  threads.clear();
  EXPECT_EQ(met, 3);
}

/// However many there are, each asks for all at once.
TEST_F(Boards, MeetInTwoRequests) {
  const auto counting = std::make_shared<CountingStore>(store_);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 9; ++rank)
    threads.emplace_back([&, rank] { TroubleBoard(counting, "data", rank, 9).meet(kPatience); });
  threads.clear();
  EXPECT_EQ(counting->requests(), 2 * 9);
}

TEST_F(Boards, NameWhoDidNotCome) {
  store_->set("nccl/data/here/2", "");
  try {
    board(1, 4).meet(kShort);
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.ranks(), (std::vector{0, 3})) << error.what();
    EXPECT_TRUE(says(error, "connect 'data': ranks 0, 3 did not come")) << error.what();
  }
  EXPECT_THROW((void)board(1, 4).read_published(kShort), PeerError);
}

TEST_F(Boards, BlameWhoIsSilent) {
  for (const auto& error : explain({Progress{7, 9}, std::nullopt, Progress{7, 8}}, kShort)) {
    if (!error) continue;
    EXPECT_EQ(error->ranks(), std::vector{1}) << error->what();
    EXPECT_TRUE(says(*error, "no sign of rank 1")) << error->what();
  }
}

TEST_F(Boards, BlameWhoIsBehind) {
  const auto errors =
      explain({Progress{7, 9}, Progress{6, 9}, Progress{7, 8}, Progress{6, 9}}, kPatience);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(errors[rank]->ranks(), (std::vector{1, 3})) << errors[rank]->what();
    EXPECT_TRUE(says(*errors[rank], "came no further than call 6")) << errors[rank]->what();
  }
  // Those that are late hear it from the others, or know no better.
  for (const std::size_t rank : {1, 3})
    EXPECT_TRUE(errors[rank]->ranks().empty() || errors[rank]->ranks() == (std::vector{1, 3}));
}

TEST_F(Boards, BlameNobodyWhenAllAreAsFar) {
  for (const auto& error : explain({Progress{7, 7}, Progress{7, 7}}, kPatience)) {
    EXPECT_TRUE(error->ranks().empty()) << error->what();
    EXPECT_STREQ(error->what(), "no answer");
  }
}

TEST_F(Boards, PassOnWhyOneGaveUp) {
  TroubleBoard first = board(0, 3);
  TroubleBoard last = board(2, 3);
  EXPECT_FALSE(first.news());
  const PeerError own = last.give_up("the disk is full", {3, 4});
  EXPECT_EQ(own.ranks(), std::vector{2});
  EXPECT_TRUE(says(own, "ended by rank 2: the disk is full"));
  board(1, 3).mention("something is wrong elsewhere", {3, 4});
  ASSERT_TRUE(first.news());
  const PeerError heard = first.explain(*first.news(), {3, 4});
  EXPECT_EQ(heard.ranks(), std::vector{2}) << heard.what();
  EXPECT_TRUE(says(heard, "rank 2 gave up: the disk is full")) << heard.what();
}

/// Knows why the work of all is over.
class KnowingStore final : public KeyValueStore {
 public:
  void set(const std::string&, std::string_view) override { tell(); }
  std::optional<std::string> get(const std::string&, std::chrono::milliseconds) override { tell(); }

 private:
  [[noreturn]] static void tell() { throw PeerError("rank 3 was lost", {3}); }
};

TEST_F(Boards, BelieveTheStore) {
  TroubleBoard own(std::make_shared<KnowingStore>(), "data", 0, 4);
  EXPECT_THROW((void)own.news(), PeerError);
  EXPECT_THROW(own.meet(kPatience), PeerError);
  own.mention("anything", {});
  for (const PeerError& error :
       {own.explain("no answer", {}), own.give_up("the disk is full", {})}) {
    EXPECT_EQ(error.ranks(), std::vector{3});
    EXPECT_STREQ(error.what(), "rank 3 was lost");
  }
}

/// Gone with the rank that kept it.
class LostStore final : public KeyValueStore {
 public:
  void set(const std::string&, std::string_view) override { throw Error("out of reach"); }
  std::optional<std::string> get(const std::string&, std::chrono::milliseconds) override {
    throw Error("out of reach");
  }
};

TEST_F(Boards, DoWithoutTheStore) {
  TroubleBoard own(std::make_shared<LostStore>(), "data", 0, 2);
  EXPECT_FALSE(own.news());
  EXPECT_EQ(own.explain("no answer", {}).ranks(), std::vector{1});
  EXPECT_EQ(own.give_up("the disk is full", {}).ranks(), std::vector{0});
}

}  // namespace
}  // namespace megatrain
