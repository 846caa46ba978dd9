/// @file
/// Several GPUs train what one would. Ranks are threads: NCCL allows one a device.

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/nccl/nccl_transport.h"
#include "tests/parallel/rank_outcome.h"
#include "tests/parallel/stores.h"

namespace megatrain::testing {
namespace {

RigOptions on_gpus() {
  RigOptions options;
  options.device = DeviceKind::cuda;
  options.update_threads = 2;
  return options;
}

/// NCCL communicators, each rank's by a transport of its own.
class NcclGroups {
 public:
  [[nodiscard]] DataRanks::Connect of(int rank) {
    {
      const std::lock_guard lock(mutex_);
      Member& own = members_[rank];
      own.device = make_cuda_device({.ordinal = rank});
      own.transport = make_nccl_transport(*own.device, std::chrono::seconds(60));
    }
    return [this, rank](const std::string& name, std::span<const int> ranks) {
      const auto place = std::ranges::find(ranks, rank) - ranks.begin();
      return transport(rank).connect(store_, name, static_cast<int>(place),
                                     static_cast<int>(ranks.size()));
    };
  }

 private:
  struct Member {
    std::unique_ptr<Device> device;
    std::unique_ptr<NcclTransport> transport;
  };
  NcclTransport& transport(int rank) {
    const std::lock_guard lock(mutex_);
    return *members_.at(rank).transport;
  }
  std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();
  std::mutex mutex_;
  std::map<int, Member> members_;
};

class NcclRanks : public ::testing::TestWithParam<RankLayout> {
 protected:
  void SetUp() override {
    if (cuda_device_count() < GetParam().ranks())
      GTEST_SKIP() << "fewer than " << GetParam().ranks() << " GPUs";
  }
};

TEST_P(NcclRanks, TrainWhatOneTrains) {
  for (const char* name : {"plain", "tied", "waves"}) {
    SCOPED_TRACE(name);
    const PlanCase c = with_ranks(case_named(name));
    expect_close(run(c, GetParam(), on_gpus(), NcclGroups()), run(c, {1, 1}, on_gpus()), kBound);
  }
}

TEST_P(NcclRanks, OneThatFailsEndsTheStepOfAll) {
  const PlanCase c = with_ranks(case_named("plain"));
  const RankLayout layout = GetParam();
  NcclGroups groups;
  const auto failures = on_threads(layout.ranks(), [&](int rank) {
    const DataRanks ranks(rank, layout.ranks(), layout.shards);
    StepGroups own = ranks.connect(groups.of(rank));
    Communicator& first = layout.shards > 1 ? *own.gather : *own.replicas;
    RigOptions options = on_gpus();
    options.ordinal = rank;
    Rig rig(c.config, share_of(c.choices, layout, rank), options, std::move(own), ranks.share());
    EXPECT_TRUE(rig.step(0).decision.apply);
    rig.engine->flush();
    const Snapshot before = rig.snapshot();
    if (rank == 1) {
      first.abort("the disk is on fire");
      throw Error("the disk is on fire");
    }
    EXPECT_THROW(rig.step(1), PeerError);
    rig.engine->flush();
    EXPECT_TRUE(rig.snapshot() == before) << "garbage was applied";
    throw Error("it noticed");
  });
  for (const std::exception_ptr& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclRanks,
                         ::testing::Values(RankLayout{1, 2}, RankLayout{2, 1}, RankLayout{1, 4},
                                           RankLayout{2, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.replicas) + "x" +
                                  std::to_string(test.param.shards);
                         });

}  // namespace
}  // namespace megatrain::testing
