// A world of one, and worlds whose ranks are threads: what needs no Gloo.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <iterator>

#include "parallel/nccl/nccl_transport.h"
#include "parallel/world/addresses.h"
#include "parallel/world/world.h"
#include "tests/parallel/idle_communicator.h"
#include "tests/parallel/meeting.h"

namespace megatrain::parallel {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

std::ptrdiff_t threads() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

TEST(AddressesTest, OneMachineNeedsLoopbackOnly) {
  const std::array<Ends, 2> ends{{{"127.0.0.1", "127.0.0.1"}, {"127.0.1.1", "127.0.1.1"}}};
  EXPECT_EQ(reachable_address(ends, 0), "127.0.0.1");
  EXPECT_EQ(reachable_address(ends, 1), "127.0.1.1");
}

TEST(AddressesTest, WhoServesIsWhereOthersWent) {
  const std::array<Ends, 3> ends{
      {{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"10.0.0.2", "10.0.0.1"}}};
  EXPECT_EQ(reachable_address(ends, 0), "10.0.0.1");
  EXPECT_EQ(reachable_address(ends, 1), "10.0.0.1");
  EXPECT_EQ(reachable_address(ends, 2), "10.0.0.2");
}

/// Says that it is a GPU, and has nothing of one.
class NoGpu final : public Device {
 public:
  NoGpu() { info_.kind = DeviceKind::cuda; }
  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  std::unique_ptr<Stream> make_stream(std::string_view) override { return {}; }
  std::unique_ptr<Event> make_event() override { return {}; }
  std::unique_ptr<TimedEvent> make_timed_event() override { return {}; }
  std::unique_ptr<DeviceMemory> allocate(std::int64_t) override { return {}; }
  std::unique_ptr<HostRegistration> register_host(void*, std::int64_t) override { return {}; }
  [[nodiscard]] std::int64_t free_bytes() const override { return 0; }
  [[nodiscard]] std::int64_t reserve_bytes() const override { return 0; }

 private:
  DeviceInfo info_;
};

TEST(WorldTest, AloneNeedsNoNetwork) {
  ProcessPlace place;
  place.rendezvous = {"no.such.host.invalid", 1};
  const std::ptrdiff_t open_before = descriptors();
  const std::ptrdiff_t threads_before = threads();
  NoGpu device;
  World world(place, {.device = &device});
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.place(), place);
  world.barrier("here", kPatience);
  EXPECT_TRUE(world.any("a", true, kPatience));
  EXPECT_FALSE(world.all("b", false, kPatience));
  EXPECT_EQ(world.exchange("c", "mine", kPatience), std::vector<std::string>{"mine"});
  world.set("key", "value");
  EXPECT_EQ(world.get("key", kPatience), "value");
  EXPECT_TRUE(says(error_of([&] { world.get("other", kPatience); }), "nobody has set 'other'"));
  world.working_on("nothing", 1ms);
  const auto communicator = world.connect("data", std::array{0});
  EXPECT_EQ(communicator->size(), 1);
  EXPECT_EQ(communicator->max(3), 3);
  EXPECT_EQ(descriptors(), open_before);
  EXPECT_EQ(threads(), threads_before);
  EXPECT_FALSE(world.trouble());

  world.fail("enough");
  world.fail("later");
  EXPECT_EQ(world.trouble()->reason, "rank 0 failed: enough");
  EXPECT_TRUE(says(error_of<PeerError>([&] { (void)communicator->max(3); }), "enough"));
  EXPECT_TRUE(says(error_of<RankLost>([&] { world.barrier("here", kPatience); }), "enough"));
}

TEST(WorldTest, ConnectsOnlyWhatIsALine) {
  World world({}, {});
  for (const std::vector<int>& ranks : {std::vector<int>{}, {1}, {0, 0}, {0, 1}, {0, -1}})
    EXPECT_TRUE(says(error_of<LogicError>([&] { (void)world.connect("data", ranks); }),
                     "connects 'data' among ranks"));
}

/// Runs `act` for each rank of a world of threads; rank 0 serves nothing, the test does.
void in_world(int size, const WorldOptions& options, const std::function<void(World&)>& act) {
  Words words;
  const RendezvousServer server(server_options(size, words));
  as_ranks(size, [&](int rank) {
    World world(place_of(rank, size, server.port()), options);
    act(world);
  });
}

TEST(WorldTest, AgreesAmongRanks) {
  in_world(3, {}, [](World& world) {
    const std::string own = std::to_string(world.rank());
    EXPECT_EQ(world.exchange("who", own, kPatience), (std::vector<std::string>{"0", "1", "2"}));
    EXPECT_TRUE(world.any("one", world.rank() == 1, kPatience));
    EXPECT_FALSE(world.all("not all", world.rank() == 1, kPatience));
    world.set("of " + own, own);
    EXPECT_EQ(world.get("of 2", kPatience), "2");
    world.barrier("end", kPatience);
  });
}

TEST(WorldTest, RefusesWhatItCannotConnect) {
  NoGpu device;
  in_world(2, {.device = &device}, [](World& world) {
    const std::string error =
        error_of<Error>([&] { (void)world.connect("data", std::array{0, 1}); });
    EXPECT_TRUE(says(error, has_nccl() ? "this device is none" : "this build has no NCCL"));
    world.barrier("end", kPatience);
  });
}

TEST(WorldTest, TroubleEndsWhatIsThereAndWhatComes) {
  in_world(2, {}, [](World& world) {
    const auto before = world.connect("before", std::array{world.rank()});
    world.barrier("ready", kPatience);
    if (world.rank() == 1) world.fail("no more");
    const auto ended = error_of<RankLost>([&] { world.get("what nobody sets", kPatience); });
    EXPECT_TRUE(says(ended, "rank 1"));
    EXPECT_EQ(world.trouble()->rank, 1);
    // Where the news comes from a thread, it may still be on its way.
    std::string error;
    while (error.empty()) error = error_of<PeerError>([&] { before->barrier(kPatience); });
    EXPECT_TRUE(says(error, "failed: no more"));
    const auto after = world.connect("after", std::array{world.rank()});
    EXPECT_TRUE(says(error_of<PeerError>([&] { after->barrier(kPatience); }), "no more"));
  });
}

/// Counts how often one is ended.
class Fragile final : public megatrain::testing::IdleCommunicator {
 public:
  explicit Fragile(std::atomic<int>& ended) : ended_(ended) {}
  ~Fragile() override { alive_ = false; }
  Fragile(const Fragile&) = delete;
  Fragile& operator=(const Fragile&) = delete;
  void abort(std::string_view) noexcept override {
    // Whoever destroys it now has to wait.
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(alive_);
      std::this_thread::yield();
    }
    ++ended_;
  }

 private:
  std::atomic<int>& ended_;
  bool alive_ = true;  // not atomic: the thread sanitizer shall see who is not kept apart
};

TEST(LivingCommunicatorsTest, ComeAndGoWhileTroubleArrives) {
  for (int round = 0; round < 20; ++round) {
    const auto list = std::make_shared<LivingCommunicators>();
    std::atomic<int> ended = 0;
    std::atomic<bool> go = false;
    std::vector<std::thread> owners;
    for (int owner = 0; owner < 3; ++owner)
      owners.emplace_back([&] {
        while (!go) std::this_thread::yield();
        while (ended == 0) {
          const auto first = list->add(std::make_unique<Fragile>(ended));
          const auto second = list->add(std::make_unique<Fragile>(ended));
        }
      });
    const auto stays = list->add(std::make_unique<Fragile>(ended));
    go = true;
    std::thread([&] { list->end({1, "rank 1 was lost"}); }).join();
    for (std::thread& owner : owners) owner.join();
    EXPECT_GE(ended, 1);
    list->end({2, "rank 2 was lost"});
    EXPECT_EQ(list->trouble()->rank, 1);
    const int so_far = ended;
    (void)list->add(std::make_unique<Fragile>(ended));
    EXPECT_EQ(ended, so_far + 1);
  }
}

}  // namespace
}  // namespace megatrain::parallel
