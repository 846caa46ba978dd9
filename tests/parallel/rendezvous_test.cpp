// Ranks as threads: they meet, agree, and hear of each other's end.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>

#include "tests/parallel/meeting.h"

namespace megatrain::parallel {
namespace {

/// A server and what is needed to join it.
class RendezvousTest : public testing::Test {
 protected:
  void serve(int world, Milliseconds silence = 10s, int generation = 0) {
    ServerOptions options = server_options(world, words_);
    options.silence = silence;
    options.party.generation = generation;
    server_.emplace(options);
    world_ = world;
  }
  ProcessPlace place(int rank) const { return place_of(rank, world_, server_->port()); }
  static RendezvousOptions options(Milliseconds join_limit = kPatience) {
    RendezvousOptions result;
    result.configuration = 7;
    result.join_limit = join_limit;
    return result;
  }
  Words words_;
  std::optional<RendezvousServer> server_;
  int world_ = 0;
};

TEST_F(RendezvousTest, MeetAndAgree) {
  for (const int world : {1, 2, 4}) {
    serve(world);
    std::atomic<int> before = 0;
    as_ranks(world, [&](int rank) {
      Rendezvous mine(place(rank), options());
      if (rank == world - 1) mine.set("key", std::string(kMaxValue, 'x'));
      EXPECT_EQ(mine.get("key", kPatience).size(), kMaxValue);
      EXPECT_EQ(mine.find("nothing", 0ms), std::nullopt);
      for (int round = 0; round < 3; ++round) {
        const auto values = mine.exchange("who", std::to_string(10 * round + rank), kPatience);
        ASSERT_EQ(values.size(), static_cast<std::size_t>(world));
        for (int other = 0; other < world; ++other)
          EXPECT_EQ(values[static_cast<std::size_t>(other)], std::to_string(10 * round + other));
      }
      const bool last = rank == world - 1;
      EXPECT_TRUE(mine.any("stop", last, kPatience));
      EXPECT_FALSE(mine.any("stop", false, kPatience));
      EXPECT_EQ(mine.all("go", last, kPatience), world == 1);
      EXPECT_TRUE(mine.all("go", true, kPatience));
      ++before;
      mine.barrier("end", kPatience);
      EXPECT_EQ(before, world);
    });
    EXPECT_TRUE(server_->wait_until_empty(kPatience));
    EXPECT_EQ(words_.text(), "");
  }
}

TEST_F(RendezvousTest, ManyKeysInOneRequest) {
  serve(3);
  as_ranks(3, [&](int rank) {
    Rendezvous mine(place(rank), options());
    const std::string own = std::to_string(rank);
    EXPECT_TRUE(mine.find_all({}, kPatience).empty());
    mine.set_all({});
    // It waits for the last one of all.
    const std::vector<std::string> keys{"0", "1", "0", "2"};
    const std::array<KeyValueStore::Entry, 2> entries{{{own, "of " + own}, {"more " + own, ""}}};
    if (rank == 2) std::this_thread::sleep_for(20ms);
    mine.set_all(entries);
    EXPECT_EQ(mine.find_all(keys, kPatience),
              (KeyValueStore::Values{"of 0", "of 1", "of 0", "of 2"}));
    EXPECT_EQ(mine.get("more 2", kPatience), "");
    // Of some nobody ever speaks.
    const std::vector<std::string> some{"never", "1", "not either"};
    for (const Milliseconds limit : {0ms, 20ms})
      EXPECT_EQ(mine.find_all(some, limit), (KeyValueStore::Values{{}, "of 1", {}}));
    EXPECT_TRUE(says(error_of([&] { mine.get("never", 10ms); }), "nobody has set 'never'"));
    mine.barrier("nobody waits any more", kPatience);
    // What came too late for some is there for others.
    if (rank == 0) mine.set("never", "now");
    EXPECT_EQ(mine.find_all({&some[0], 2}, kPatience), (KeyValueStore::Values{"now", "of 1"}));
    mine.set("large " + own, std::string(kMaxValue, 'x'));
    const std::vector<std::string> large{"large 0", "large 1"};
    EXPECT_TRUE(says(error_of([&] { (void)mine.find_all(large, kPatience); }), "too much"));
    mine.barrier("end", kPatience);
  });
}

TEST_F(RendezvousTest, RankZeroServes) {
  serve(1);  // a port that is free now
  const std::uint16_t port = server_->port();
  server_.reset();
  as_ranks(3, [&](int rank) {
    ProcessPlace place = place_of(rank, 3, port);
    place.served = false;
    place.rendezvous.host = "localhost";
    Rendezvous mine(place, options());
    mine.barrier("b", kPatience);
    // Who serves leaves first, and stays for the others all the same.
    if (rank != 0) std::this_thread::sleep_for(50ms);
    if (rank != 0) {
      EXPECT_FALSE(mine.trouble().has_value());
    }
  });
}

TEST_F(RendezvousTest, AloneNeedsNoPort) {
  Rendezvous mine(ProcessPlace{}, options());
  EXPECT_TRUE(mine.all("x", true, kPatience));
}

TEST_F(RendezvousTest, IPv6) {
  std::optional<RendezvousServer> server;
  try {
    ServerOptions options = server_options(1, words_);
    options.host = "::1";
    server.emplace(options);
  } catch (const UserError&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  ProcessPlace place = place_of(0, 1, server->port());
  place.rendezvous.host = "::1";
  Rendezvous(place, options()).barrier("b", kPatience);
}

TEST_F(RendezvousTest, APortThatIsTakenIsNamed) {
  serve(1);
  ProcessPlace place = place_of(0, 2, server_->port());
  place.served = false;
  EXPECT_TRUE(says(error_of<UserError>([&] { const Rendezvous mine(place, options(300ms)); }),
                   "127.0.0.1:" + std::to_string(server_->port())));
}

TEST_F(RendezvousTest, OneTooFewIsNamed) {
  serve(4);
  as_ranks(3, [&](int rank) {
    EXPECT_TRUE(says(error_of<UserError>([&] { const Rendezvous mine(place(rank), options(1s)); }),
                     "missing: rank 3 (it has not come)"));
  });
}

TEST_F(RendezvousTest, NobodyServes) {
  serve(2);
  ProcessPlace there = place(1);
  server_.reset();
  there.served = false;
  const std::string error =
      error_of<UserError>([&] { const Rendezvous mine(there, options(300ms)); });
  EXPECT_TRUE(says(error, "rank 0, which serves it, is missing"));
  EXPECT_TRUE(says(error, "Connection refused"));
}

TEST_F(RendezvousTest, StrangersAreRefusedOnBothSides) {
  serve(2, 10s, 1);
  struct Case {
    const char* words;
    ProcessPlace stranger;
    std::uint64_t configuration = 7;
  };
  const auto changed = [&](auto change) {
    ProcessPlace one = place(1);
    one.generation = 1;
    change(one);
    return one;
  };
  const std::vector<Case> cases = {
      {"it belongs to run 'other'", changed([](ProcessPlace& p) { p.run_id = "other"; })},
      {"generation 0", changed([](ProcessPlace& p) { p.generation = 0; })},
      {"counts 3 ranks", changed([](ProcessPlace& p) { p.world = 3; })},
      {"configuration has hash 0000000000000008", changed([](ProcessPlace&) {}), 8},
  };
  for (const Case& one : cases) {
    serve(2, 10s, 1);
    std::string first;
    std::thread rank_0([&] {
      first = error_of<UserError>([&] {
        ProcessPlace mine = place(0);
        mine.generation = 1;
        const Rendezvous here(mine, options(500ms));
      });
    });
    while (server_->wait_until_empty(0ms)) std::this_thread::sleep_for(5ms);
    ProcessPlace stranger = one.stranger;
    stranger.rendezvous.port = server_->port();
    RendezvousOptions given = options();
    given.configuration = one.configuration;
    const std::string error = error_of<UserError>([&] { const Rendezvous mine(stranger, given); });
    EXPECT_TRUE(says(error, one.words));
    EXPECT_FALSE(error.find("refuses") != std::string::npos) << error;
    EXPECT_TRUE(says(words_.text(), one.words));
    rank_0.join();
    EXPECT_TRUE(says(first, "missing: rank 1"));
  }
  // Whose rank is known is named to those who wait for it.
  EXPECT_TRUE(says(words_.text(), "rank 1: its configuration"));
}

TEST_F(RendezvousTest, ANewerGenerationWaitsForItsOwn) {
  serve(1, 10s, 0);
  ProcessPlace mine = place(0);
  mine.generation = 1;
  EXPECT_TRUE(says(error_of<UserError>([&] { const Rendezvous here(mine, options(500ms)); }),
                   "generation 1"));
  const std::uint16_t port = server_->port();
  std::thread newcomer([&] { Rendezvous(mine, options()).barrier("b", kPatience); });
  std::this_thread::sleep_for(50ms);
  server_.reset();
  ServerOptions next = server_options(1, words_);
  next.party.generation = 1;
  next.port = port;
  server_.emplace(next);
  newcomer.join();
}

TEST_F(RendezvousTest, TheSameRankTwice) {
  serve(1);
  const Rendezvous mine(place(0), options());
  EXPECT_TRUE(says(error_of<UserError>([&] { const Rendezvous other(place(0), options()); }),
                   "is here already"));
}

TEST_F(RendezvousTest, WhoDoesNotComeToABarrierIsNamed) {
  serve(3);
  std::promise<void> over;
  const std::shared_future<void> until = over.get_future().share();
  std::atomic<int> done = 0;
  as_ranks(3, [&](int rank) {
    Rendezvous mine(place(rank), options());
    if (rank == 1) {
      mine.working_on("step 12, unit 3", 0ms);
      until.wait();
      return;
    }
    const std::string error = error_of([&] { mine.barrier("save", 500ms); });
    EXPECT_TRUE(says(error, "'save'"));
    EXPECT_TRUE(says(error, "missing: rank 1"));
    if (++done == 2) over.set_value();
    until.wait();
  });
}

TEST_F(RendezvousTest, WhoHasLeftIsNotWaitedFor) {
  // It leaves before the other waits, and after.
  for (const auto& [leaves_after, waits_after] : {std::pair{0ms, 100ms}, {100ms, 0ms}}) {
    serve(2);
    as_ranks(2, [&, leaves = leaves_after, waits = waits_after](int rank) {
      Rendezvous mine(place(rank), options());
      std::this_thread::sleep_for(rank == 1 ? leaves : waits);
      if (rank == 1) return;
      const std::string error = error_of([&] { mine.barrier("b", kPatience); });
      EXPECT_TRUE(says(error, "rank 1"));
      EXPECT_TRUE(says(error, "it has left"));
    });
  }
}

TEST_F(RendezvousTest, AFailureReachesAll) {
  serve(4);
  std::atomic<int> heard = 0;
  as_ranks(4, [&](int rank) {
    RendezvousOptions given = options();
    given.on_trouble = [&](const Trouble& trouble) {
      EXPECT_EQ(trouble.rank, 2);
      EXPECT_TRUE(says(trouble.reason, "out of memory"));
      ++heard;
    };
    Rendezvous mine(place(rank), given);
    if (rank == 2) mine.fail("out of memory");
    const std::string error = error_of<RankLost>([&] { mine.barrier("b", kPatience); });
    EXPECT_TRUE(says(error, "out of memory"));
    EXPECT_TRUE(says(error_of<RankLost>([&] { mine.set("a", "b"); }), "rank 2"));
  });
  EXPECT_EQ(heard, 3);
}

TEST_F(RendezvousTest, TheWatchdogNamesWhatHangs) {
  serve(2);
  as_ranks(2, [&](int rank) {
    Rendezvous mine(place(rank), options());
    if (rank == 1) mine.working_on("step 7, reduce unit 3", 200ms);
    if (rank == 0) {
      mine.working_on("step 7", 100ms);
      mine.working_on("step 8", 0ms);  // it went on: nothing to complain of
    }
    const auto begin = Clock::now();
    std::string error;
    do {
      error = error_of<RankLost>([&] { mine.find("never", 100ms); });
    } while (error.empty() && Clock::now() - begin < kPatience);
    EXPECT_TRUE(says(error, "rank 1"));
    EXPECT_TRUE(says(error, "step 7, reduce unit 3"));
  });
}

/// Who is late first waits for the one that is to blame.
TEST_F(RendezvousTest, TheWatchdogNamesWhoIsBehind) {
  serve(3);
  as_ranks(3, [&](int rank) {
    RendezvousOptions given = options();
    given.progress = [rank]() -> std::uint64_t { return rank == 1 ? 41 : 42; };
    Rendezvous mine(place(rank), given);
    mine.working_on("step 7 of " + std::to_string(rank), rank == 1 ? 60s : 100ms);
    const std::string error = error_of<RankLost>([&] { mine.get("never", kPatience); });
    EXPECT_TRUE(says(error, "rank 1 (process"));
    EXPECT_TRUE(says(error, "failed: it makes no progress at: step 7 of 1; rank "));
    EXPECT_TRUE(says(error, " waits; for 0.1 s it has been at: step 7 of "));
    EXPECT_EQ(mine.trouble()->rank, 1);
  });
}

TEST_F(RendezvousTest, PostsComeToAllInOneOrder) {
  serve(3);
  std::vector<Words> heard(3);
  as_ranks(3, [&](int rank) {
    RendezvousOptions given = options();
    given.on_post = [&, rank](int from, const std::string& text) {
      heard[static_cast<std::size_t>(rank)].add(std::to_string(from) + text);
    };
    Rendezvous mine(place(rank), given);
    for (int i = 0; i < 5; ++i) mine.post(std::to_string(i));
    mine.barrier("end", kPatience);
  });
  EXPECT_EQ(heard[0].text().size(), 15U * 3);
  EXPECT_EQ(heard[0].text(), heard[1].text());
  EXPECT_EQ(heard[0].text(), heard[2].text());
}

TEST_F(RendezvousTest, TheServersEndIsNoticed) {
  serve(1);
  Rendezvous mine(place(0), options());
  std::thread end([&] { server_.reset(); });
  EXPECT_TRUE(says(error_of<RankLost>([&] { mine.get("never", kPatience); }), "is gone"));
  end.join();
}

TEST_F(RendezvousTest, ManyRanks) {
  constexpr int kWorld = 48;
  serve(kWorld);
  as_ranks(kWorld, [&](int rank) {
    Rendezvous mine(place(rank), options());
    EXPECT_EQ(mine.exchange("x", std::string(kMaxExchanged, 'v'), kPatience).size(), kWorld);
  });
}

}  // namespace
}  // namespace megatrain::parallel
